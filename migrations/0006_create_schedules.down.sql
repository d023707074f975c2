-- Removes the schedules; the jobs they enqueued stay.
DROP FUNCTION belfry.resume_schedule(text, text, text);
DROP FUNCTION belfry.pause_schedule(text, text, text);
DROP FUNCTION belfry.schedule_definition(belfry.schedules);
DROP TABLE belfry.schedules;
DROP FUNCTION belfry.schedules_record();
DROP FUNCTION belfry.schedules_derive();
DROP FUNCTION belfry.schedules_validate();
DROP FUNCTION belfry.check_schedule_template(jsonb, boolean);
DELETE FROM belfry.events WHERE subject = 'schedule';
