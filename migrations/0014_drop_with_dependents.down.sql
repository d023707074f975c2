-- Restores the function of 0005_create_outbox.
DO $$
BEGIN
    EXECUTE replace(pg_get_functiondef('belfry.drop_notifications(timestamptz)'::regprocedure), 'DROP TABLE belfry.notifications_%s CASCADE', 'DROP TABLE belfry.notifications_%s');
END $$;
