package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/migrations"
)

// ownProfiles returns the profiles that the connected user needs without --for: monitor if it may not
// write, otherwise run, and deliver if senders are configured.
func (d *doctor) ownProfiles(writes bool) []*profile {
	switch {
	case !writes:
		return profilesNamed([]string{"monitor"})
	case len(d.Senders) > 0:
		return profilesNamed([]string{"run", "deliver"})
	default:
		return profilesNamed([]string{"run"})
	}
}

// enqueuesOnly reports whether the user may enqueue but not read, like the role of an application. The
// remaining checks are skipped then. The profile is given by --for enqueue, or found because the user
// has all of its privileges.
func (d *doctor) enqueuesOnly(ctx context.Context) bool {
	if slices.ContainsFunc(d.profiles, func(p *profile) bool { return p.name != "enqueue" }) {
		return false
	}
	if _, _, err := db.ReadSchema(ctx, d.Reads(), migrations.Latest()); err == nil || db.KindOf(err) != db.KindForbidden {
		return false
	}
	if len(d.profiles) == 0 {
		enqueue := profileNamed("enqueue")
		if lacks, err := d.lacksOf(ctx, enqueue); err != nil || len(lacks) > 0 {
			return false
		}
		d.profiles = []*profile{enqueue}
	}
	d.ok("schema", "not checked, nor its contents: %s may not read belfry's tables, which enqueuing does not need", d.user)
	return true
}

// checkPrivileges compares the privileges of the user with the profiles of --for, or without --for with
// all profiles. A role that has all of one profile is complete; profiles that it lacks entirely are not
// its purpose.
func (d *doctor) checkPrivileges(ctx context.Context, check string) error {
	list := d.profiles
	if len(list) == 0 {
		var writes bool
		if err := d.Reads().QueryRow(ctx, queries.doctorWrites).Scan(&writes); err != nil {
			return err
		}
		if done, err := d.judgeProfiles(ctx, check, writes); err != nil || done {
			return err
		}
		list = d.ownProfiles(writes)
	}
	lacks, err := d.lacksOf(ctx, list...)
	if err != nil {
		remedy := text.Line{}
		if db.KindOf(err) == db.KindForbidden {
			remedy = text.Sprintf("GRANT USAGE ON SCHEMA belfry TO %s; %s", d.quoted(),
				text.Command("roles").Flag("for", strings.Join(namesOf(list), ",")).Flag("role", d.user).To("print all GRANTs"))
		}
		d.fail(check, remedy, "%s", err)
		return nil
	}
	d.lacking(check, HealthFailed, "", lacks)
	if len(lacks) == 0 {
		d.ok(check, "%s has all privileges for %s", d.user, strings.Join(namesOf(list), ","))
	}
	return nil
}

// judgeProfiles reports the profiles that the user has entirely, in part or not at all. It returns false,
// and reports nothing, if the user may write but has no complete profile that writes.
func (d *doctor) judgeProfiles(ctx context.Context, check string, writes bool) (done bool, err error) {
	var can, cannot, partly []*profile
	missing := make(map[string][]lack)
	for _, p := range profilesNamed([]string{"run", "deliver", "operate", "monitor"}) {
		if missing[p.name], err = d.lacksOf(ctx, p); err != nil {
			return false, err
		}
		switch {
		case len(missing[p.name]) == 0:
			can = append(can, p)
		case p.hasOwn(missing[p.name]):
			partly = append(partly, p)
		default:
			cannot = append(cannot, p)
		}
	}
	if len(can) == 0 || writes && len(can) == 1 && can[0].name == "monitor" {
		return false, nil
	}
	line := text.Sprintf("%s can %s", d.user, strings.Join(namesOf(can), ", "))
	if len(cannot) > 0 {
		names := namesOf(cannot)
		line = text.Sprintf("%s; it cannot %s; %s", line, strings.Join(names, ", "),
			text.Command("roles").Flag("for", strings.Join(names, ",")).To("print the GRANTs"))
	}
	d.ok(check, "%s", line)
	for _, p := range partly {
		d.lacking(check, HealthWarning, " and so cannot "+p.name+", for which it has some privileges", missing[p.name])
	}
	return true, nil
}

// lacking adds a finding for each missing privilege, with its GRANT.
func (d *doctor) lacking(check string, status Health, why string, lacks []lack) {
	for _, l := range lacks {
		missing := strings.Join(l.Missing, ", ")
		d.note(check, status, fmt.Sprintf("GRANT %s ON %s TO %s", missing, l.Relation, d.quoted()), "%s lacks %s on %s%s", d.user,
			missing, l.Relation, why)
	}
}

// lack lists missing privileges on a relation in the syntax of GRANT, with columns if these suffice.
type lack struct {
	Relation string
	Missing  []string
}

// lacksOf returns the privileges of profiles that the connected user lacks.
func (d *doctor) lacksOf(ctx context.Context, list ...*profile) ([]lack, error) {
	reads := false
	var relations, privileges, columns []string
	for _, p := range list {
		reads = reads || p.reads
		for _, need := range p.needs() {
			relations, privileges, columns = append(relations, need.relation), append(privileges, need.privilege), append(columns, need.columns)
		}
	}
	return collect[lack](ctx, d, queries.doctorPrivileges, pgx.StrictNamedArgs{
		"relations": relations, "privileges": privileges, "columns": columns, "reads": reads,
	})
}

// need is one privilege on a relation or on some of its columns.
type need struct{ relation, privilege, columns string }

func (p *profile) needs() (list []need) {
	for _, g := range p.grants {
		for privilege := range strings.SplitSeq(g.privileges, ", ") {
			list = append(list, need{g.on(), privilege, g.columns})
		}
	}
	return list
}

// hasOwn reports whether a user with these lacks has a privilege that only this profile needs. It
// indicates that the user is meant to have the profile.
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

// unreadable returns the remedy for a schema that the user may not read.
func (d *doctor) unreadable() text.Line {
	return text.Sprintf("GRANT USAGE ON SCHEMA belfry TO %s; GRANT SELECT ON ALL TABLES IN SCHEMA belfry TO %s; %s", d.quoted(), d.quoted(),
		text.Command("roles").Flag("for", "monitor").Flag("role", d.user).To("print the GRANTs"))
}
