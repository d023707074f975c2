-- Removes jobs and lanes with their history.
DROP FUNCTION belfry.resume_lane, belfry.pause_lane;
DROP VIEW belfry.job_progress;
DROP FUNCTION belfry.job_version;
DROP TABLE belfry.job_deliveries, belfry.job_revisions, belfry.job_skips, belfry.job_values, belfry.job_events, belfry.jobs, belfry.lanes;
DROP FUNCTION belfry.job_values_validate, belfry.job_deliveries_fold, belfry.is_job_act, belfry.jobs_record_throttle, belfry.jobs_record_changes, belfry.jobs_record, belfry.jobs_transition, belfry.jobs_validate, belfry.jobs_asked, belfry.jobs_forget;
DROP SEQUENCE belfry.arrivals_seq;
