package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// profilesOf are the profiles that the connected user is measured by, when --for does not
// say: who may change nothing looks, others run jobs, and deliver with senders.
func profilesOf(ctx context.Context, s settings, db *database) ([]*profile, error) {
	var writes bool
	if err := db.Pool.QueryRow(ctx, queries.SQL("DoctorWrites")).Scan(&writes); err != nil {
		return nil, err
	}
	switch {
	case !writes:
		return chosenProfiles([]string{"monitor"})
	case len(s.Senders) > 0:
		return chosenProfiles([]string{"run", "deliver"})
	default:
		return chosenProfiles([]string{"run"})
	}
}

// checkPrivileges compares what the user may do with what its profiles need.
func (d *doctor) checkPrivileges(ctx context.Context, s settings, db *database) {
	list := d.profiles
	var err error
	if len(list) == 0 {
		list, err = profilesOf(ctx, s, db)
	}
	var names []string
	reads := false
	args := pgx.StrictNamedArgs{}
	var relations, privileges []string
	var columns []bool
	for _, p := range list {
		names = append(names, p.name)
		reads = reads || p.reads
		for _, g := range p.grants {
			for privilege := range strings.SplitSeq(g.privileges, ", ") {
				relations, privileges, columns = append(relations, "belfry."+g.relation), append(privileges, privilege), append(columns, g.columns != "")
			}
		}
	}
	args["relations"], args["privileges"], args["columns"], args["reads"] = relations, privileges, columns, reads
	type lack struct{ Relation, Missing string }
	var lacks []lack
	if err == nil {
		var rows pgx.Rows
		if rows, err = db.Pool.Query(ctx, queries.SQL("DoctorPrivileges"), args); err == nil {
			lacks, err = pgx.CollectRows(rows, pgx.RowToStructByName[lack])
		}
	}
	if err != nil {
		d.note("privileges", healthFailed, "", "%s", err)
		return
	}
	user, what := pgx.Identifier{db.Address.User}.Sanitize(), strings.Join(names, ",")
	for _, l := range lacks {
		d.note("privileges", healthFailed, fmt.Sprintf("GRANT %s ON %s TO %s", l.Missing, l.Relation, user),
			"%s lacks %s on %s", db.Address.User, l.Missing, l.Relation)
	}
	if len(lacks) == 0 {
		d.note("privileges", healthOK, "", "%s may do all that %s needs", db.Address.User, what)
	}
}

// unreadable is the remedy of a schema that the user may not look into.
func unreadable(user string) string {
	role := pgx.Identifier{user}.Sanitize()
	return fmt.Sprintf("GRANT USAGE ON SCHEMA belfry TO %s; GRANT SELECT ON ALL TABLES IN SCHEMA belfry TO %s; `belfry roles --for monitor --role %s` prints them", role, role, user)
}
