-- Removes the channels, segments and platforms with all their data.
DROP FUNCTION belfry.distance_m(point, point);
DROP TABLE belfry.segment_members;
DROP TABLE belfry.segments;
DROP TABLE belfry.channels;
DROP FUNCTION belfry.channels_keep_key();
DROP TABLE belfry.platforms;
