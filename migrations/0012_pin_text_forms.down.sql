-- Restores the settings of the functions.
DO $$
DECLARE
    form record;
BEGIN
    FOR form IN SELECT * FROM (VALUES ('timezone', 'UTC'), ('datestyle', 'ISO, MDY'), ('intervalstyle', 'postgres'), ('extra_float_digits', '1'),
            ('bytea_output', 'hex'), ('lc_monetary', 'C'), ('array_nulls', 'on'), ('quote_all_identifiers', 'off')) v (name, value) LOOP
        EXECUTE replace(pg_get_functiondef('belfry.attachment_follow()'::regprocedure), format(' SET %s = ''%L''', form.name, form.value), '');
        EXECUTE format('ALTER FUNCTION belfry.channels_follow() RESET %s', form.name);
        EXECUTE format('ALTER FUNCTION belfry.attachment_step(text, integer, boolean) RESET %s', form.name);
    END LOOP;
END $$;

ALTER FUNCTION belfry.audience_radius(double precision, double precision, double precision) RESET extra_float_digits;
ALTER FUNCTION belfry.jobs_limit() RESET extra_float_digits;
