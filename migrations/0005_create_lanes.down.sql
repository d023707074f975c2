-- Lanes are open again, and their history is gone.
DROP FUNCTION belfry.resume_lane(text, text, text);
DROP FUNCTION belfry.pause_lane(text, text, text);
DROP TABLE belfry.lanes, belfry.events;
DROP FUNCTION belfry.lanes_record();
