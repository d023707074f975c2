package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/node"
	"github.com/belfryhq/belfry/internal/settings"
)

// profilesOf are the profiles that the connected user is measured by, when --for does not
// say: who may change nothing looks, others run jobs, and deliver with senders.
func profilesOf(ctx context.Context, s settings.Settings, db *database) ([]*profile, error) {
	var writes bool
	if err := db.Pool.QueryRow(ctx, queries.doctorWrites).Scan(&writes); err != nil {
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

// enqueuesOnly reports whether the user enqueues and may not look, as an application's role
// should be: of the rest there is nothing to say then. --for enqueue says so, or that the
// user has all that it needs for it.
func (d *doctor) enqueuesOnly(ctx context.Context, db *database) bool {
	if slices.ContainsFunc(d.profiles, func(p *profile) bool { return p.name != "enqueue" }) {
		return false
	}
	if _, err := node.SchemaVersion(ctx, db.Pool); !forbidden(err) {
		return false
	}
	if len(d.profiles) == 0 {
		enqueue := profileNamed("enqueue")
		if lacks, err := lacksOf(ctx, db, enqueue); err != nil || len(lacks) > 0 {
			return false
		}
		d.profiles = []*profile{enqueue}
	}
	d.note("schema", healthOK, "", "not looked at, nor what depends on it: %s may not read belfry's tables, and need not to enqueue", db.Address.User)
	return true
}

// checkPrivileges compares what the user may do with what --for names, or without it with
// every profile: a role that can do all of what one is for does its work, and whatever else
// is left out entirely is not its work.
func (d *doctor) checkPrivileges(ctx context.Context, s settings.Settings, db *database) {
	list := d.profiles
	if len(list) == 0 {
		done, err := d.judgeProfiles(ctx, db)
		if err == nil && !done {
			list, err = profilesOf(ctx, s, db)
		}
		if err != nil {
			d.note("privileges", healthFailed, "", "%s", err)
		}
		if err != nil || done {
			return
		}
	}
	lacks, err := lacksOf(ctx, db, list...)
	if err != nil {
		remedy := ""
		if forbidden(err) {
			remedy = fmt.Sprintf("GRANT USAGE ON SCHEMA belfry TO %s; `belfry roles --for %s --role %s` prints all that it needs",
				pgx.Identifier{db.Address.User}.Sanitize(), strings.Join(namesOf(list), ","), db.Address.User)
		}
		d.note("privileges", healthFailed, remedy, "%s", err)
		return
	}
	d.lacking(db, healthFailed, "", lacks)
	if len(lacks) == 0 {
		d.note("privileges", healthOK, "", "%s may do all that %s needs", db.Address.User, strings.Join(namesOf(list), ","))
	}
}

// judgeProfiles says of what the user may do all, some or nothing. It has not done it when
// the user may do all of nothing that changes something, and yet changes something.
func (d *doctor) judgeProfiles(ctx context.Context, db *database) (done bool, err error) {
	var can, cannot, partly []*profile
	missing := make(map[string][]lack)
	for _, name := range []string{"run", "deliver", "operate", "monitor"} {
		p := profileNamed(name)
		if missing[name], err = lacksOf(ctx, db, p); err != nil {
			return false, err
		}
		if len(missing[name]) == 0 {
			can = append(can, p)
		} else {
			cannot = append(cannot, p)
		}
	}
	var writes bool
	if err := db.Pool.QueryRow(ctx, queries.doctorWrites).Scan(&writes); err != nil {
		return false, err
	}
	if len(can) == 0 || writes && len(can) == 1 && can[0].name == "monitor" {
		return false, nil
	}
	cannot = slices.DeleteFunc(cannot, func(p *profile) bool {
		if p.hasOwn(missing[p.name]) {
			partly = append(partly, p)
			return true
		}
		return false
	})
	text := fmt.Sprintf("%s can %s", db.Address.User, strings.Join(namesOf(can), ", "))
	if len(cannot) > 0 {
		names := namesOf(cannot)
		text += fmt.Sprintf("; it cannot %s, for which `belfry roles --for %s` prints the GRANTs", strings.Join(names, ", "), strings.Join(names, ","))
	}
	d.note("privileges", healthOK, "", "%s", text)
	for _, p := range partly {
		d.lacking(db, healthWarning, " and so cannot "+p.name+", of which it has a part", missing[p.name])
	}
	return true, nil
}

// lacking notes what is missing, each with the statement that gives it.
func (d *doctor) lacking(db *database, status health, why string, lacks []lack) {
	user := pgx.Identifier{db.Address.User}.Sanitize()
	for _, l := range lacks {
		missing := strings.Join(l.Missing, ", ")
		d.note("privileges", status, fmt.Sprintf("GRANT %s ON %s TO %s", missing, l.Relation, user), "%s lacks %s on %s%s", db.Address.User, missing, l.Relation, why)
	}
}

// lack is what a user may not do with a relation: privileges as GRANT has them, with the
// columns where those are enough.
type lack struct {
	Relation string
	Missing  []string
}

// lacksOf is what the connected user lacks of what profiles need.
func lacksOf(ctx context.Context, db *database, list ...*profile) ([]lack, error) {
	reads := false
	var relations, privileges, columns []string
	for _, p := range list {
		reads = reads || p.reads
		for _, need := range p.needs() {
			relations, privileges, columns = append(relations, need.relation), append(privileges, need.privilege), append(columns, need.columns)
		}
	}
	rows, err := db.Pool.Query(ctx, queries.doctorPrivileges, pgx.StrictNamedArgs{
		"relations": relations, "privileges": privileges, "columns": columns, "reads": reads,
	})
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[lack])
}

// need is one privilege on one relation, or on columns of it.
type need struct{ relation, privilege, columns string }

func (p *profile) needs() (list []need) {
	for _, g := range p.grants {
		for privilege := range strings.SplitSeq(g.privileges, ", ") {
			list = append(list, need{g.on(), privilege, g.columns})
		}
	}
	return list
}

// hasOwn reports whether a user who lacks so much has a privilege that only this profile
// needs: the profile was meant for the user.
func (p *profile) hasOwn(lacks []lack) bool {
	has := make(map[string]bool)
	for _, need := range p.needs() {
		has[need.privilege+" on "+need.relation] = true
	}
	for _, other := range profiles() {
		for _, need := range other.needs() {
			if other.name != p.name {
				delete(has, need.privilege+" on "+need.relation)
			}
		}
	}
	for _, l := range lacks {
		for _, missing := range l.Missing {
			privilege, _, _ := strings.Cut(missing, " (")
			delete(has, privilege+" on "+l.Relation)
		}
	}
	return len(has) > 0
}

func namesOf(list []*profile) (names []string) {
	for _, p := range list {
		names = append(names, p.name)
	}
	return names
}

// unreadable is the remedy of a schema that the user may not look into.
func unreadable(user string) string {
	role := pgx.Identifier{user}.Sanitize()
	return fmt.Sprintf("GRANT USAGE ON SCHEMA belfry TO %s; GRANT SELECT ON ALL TABLES IN SCHEMA belfry TO %s; `belfry roles --for monitor --role %s` prints them", role, role, user)
}
