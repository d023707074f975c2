-- Removes the functions by which jobs are enqueued, approved and controlled, with their ceilings.
DROP FUNCTION belfry.approve, belfry.retry_skipped, belfry.resume_edited, belfry.set, belfry.retry_group,
    belfry.retry, belfry.resume_group, belfry.resume, belfry.abort_group, belfry.abort, belfry.act_on, belfry.unlock_version, belfry.lock_version, belfry.enqueue_group,
    belfry.enqueue, belfry.audience_missing, belfry.says;
DROP TYPE belfry.job_act;
DROP TRIGGER jobs_count ON belfry.jobs;
DROP TRIGGER jobs_limit ON belfry.jobs;
DROP FUNCTION belfry.jobs_approve, belfry.job_hands, belfry.approval_binds, belfry.jobs_limit, belfry.jobs_count, belfry.group_exceeded, belfry.lanes_exceeded, belfry.approval_exceeded, belfry.approval_needed, belfry.most_recipients;
DROP TABLE belfry.limits;
