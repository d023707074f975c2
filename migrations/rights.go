package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// insufficientPrivilege is the SQLSTATE of a missing privilege.
const insufficientPrivilege = "42501"

// rightsSQL returns the privileges of a migrating role: the quoted names of the role and the database;
// CREATE on the database; whether the schema exists, USAGE and CREATE on it, its owner, and whether the
// role is a member of the owner.
//
//sql:allow migrations stands alone
const rightsSQL = `
SELECT quote_ident(current_user), quote_ident(current_database()), has_database_privilege(current_database(), 'CREATE'),
       n.oid IS NOT NULL, coalesce(has_schema_privilege(n.oid, 'USAGE'), false), coalesce(has_schema_privilege(n.oid, 'CREATE'), false),
       coalesce(quote_ident(pg_get_userbyid(n.nspowner)), ''), coalesce(pg_has_role(n.nspowner, 'USAGE'), false)
  FROM (SELECT to_regnamespace('belfry') AS oid) s
  LEFT JOIN pg_namespace n ON n.oid = s.oid`

// explainRights adds the missing privilege and the GRANT to an error of a missing privilege.
func explainRights(ctx context.Context, db *sql.DB, err error) error {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != insufficientPrivilege {
		return err
	}
	var role, database, owner string
	var creates, there, uses, createsIn, owns bool
	if asked := db.QueryRowContext(ctx, rightsSQL).Scan(&role, &database, &creates, &there, &uses, &createsIn, &owner, &owns); asked != nil {
		return err // without an explanation
	}
	switch {
	case !there && !creates:
		return fmt.Errorf("%s needs CREATE on database %s: GRANT CREATE ON DATABASE %s TO %s: %w", role, database, database, role, err)
	case there && !owns && uses && createsIn:
		return fmt.Errorf(
			"the schema belfry belongs to %s, and only the owner can alter its tables: connect as %s, or GRANT %s TO %s: %w", owner, owner,
			owner, role, err)
	case there && !uses && !createsIn:
		return fmt.Errorf(
			"%s needs USAGE and CREATE on schema belfry: GRANT USAGE, CREATE ON SCHEMA belfry TO %s; or connect as its owner, %s: %w",
			role, role, owner, err)
	case there && !createsIn:
		return fmt.Errorf("%s needs CREATE on schema belfry: GRANT CREATE ON SCHEMA belfry TO %s; or connect as its owner, %s: %w",
			role, role, owner, err)
	case there && !uses:
		return fmt.Errorf("%s needs USAGE on schema belfry: GRANT USAGE ON SCHEMA belfry TO %s; or connect as its owner, %s: %w", role,
			role, owner, err)
	}
	return err
}
