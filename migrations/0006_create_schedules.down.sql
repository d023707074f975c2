-- Removes the schedules.
DROP FUNCTION belfry.forget_listed, belfry.detail_without, belfry.resume_schedule, belfry.pause_schedule;
DROP TABLE belfry.schedules;
DROP FUNCTION belfry.schedules_record_firing, belfry.schedules_check_role, belfry.schedules_validate,
    belfry.cron_problem, belfry.check_schedule_template, belfry.whole_seconds;
