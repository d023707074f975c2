-- A partition of notifications is dropped together with what refers to it. Before, a view on a partition, which anybody who may
-- use the schema can create without a right on the table, ended each prune at this partition.
DO $$
BEGIN
    EXECUTE replace(pg_get_functiondef('belfry.drop_notifications(timestamptz)'::regprocedure), 'DROP TABLE belfry.notifications_%s', 'DROP TABLE belfry.notifications_%s CASCADE');
END $$;
