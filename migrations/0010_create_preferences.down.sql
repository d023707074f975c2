-- Removes every opt-out and every record of an invalid address.
DROP FUNCTION belfry.opt_in(bigint, text, text), belfry.opt_out(bigint, text, text, text);
DROP TABLE belfry.invalid_addresses;
DROP TABLE belfry.opt_outs;
DROP FUNCTION belfry.opt_outs_validate();
