-- Removes the functions by which jobs are enqueued and controlled.
DROP FUNCTION belfry.retry_skipped, belfry.resume_edited, belfry.set, belfry.retry_group,
    belfry.retry, belfry.resume_group, belfry.resume, belfry.abort_group, belfry.abort, belfry.act_on, belfry.unlock_version, belfry.lock_version, belfry.enqueue_group,
    belfry.enqueue, belfry.audience_missing, belfry.says;
DROP TYPE belfry.job_act;
