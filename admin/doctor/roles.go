package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/errkind"
)

// ownProfiles are the profiles that the connected user is measured by, when --for does not
// say: who may change nothing looks, others run jobs, and deliver with senders.
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

// enqueuesOnly reports whether the user enqueues and may not look, as an application's role
// should be: of the rest there is nothing to say then. --for enqueue says so, or that the
// user has all that it needs for it.
func (d *doctor) enqueuesOnly(ctx context.Context) bool {
	if slices.ContainsFunc(d.profiles, func(p *profile) bool { return p.name != "enqueue" }) {
		return false
	}
	if _, err := SchemaVersion(ctx, d.Reads()); err == nil || errkind.Of(err) != errkind.Forbidden {
		return false
	}
	if len(d.profiles) == 0 {
		enqueue := profileNamed("enqueue")
		if lacks, err := d.lacksOf(ctx, enqueue); err != nil || len(lacks) > 0 {
			return false
		}
		d.profiles = []*profile{enqueue}
	}
	d.ok("schema", "not looked at, nor what depends on it: %s may not read belfry's tables, and need not to enqueue", d.user)
	return true
}

// checkPrivileges compares what the user may do with what --for names, or without it with
// every profile: a role that can do all of what one is for does its work, and whatever else
// is left out entirely is not its work.
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
		remedy := ""
		if errkind.Of(err) == errkind.Forbidden {
			remedy = fmt.Sprintf("GRANT USAGE ON SCHEMA belfry TO %s; `belfry roles --for %s --role %s` prints all that it needs", d.quoted(), strings.Join(namesOf(list), ","), d.user)
		}
		d.fail(check, remedy, "%s", err)
		return nil
	}
	d.lacking(check, HealthFailed, "", lacks)
	if len(lacks) == 0 {
		d.ok(check, "%s may do all that %s needs", d.user, strings.Join(namesOf(list), ","))
	}
	return nil
}

// judgeProfiles says of what the user may do all, some or nothing. It has not done it when
// the user may do all of nothing that changes something, and yet writes.
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
	text := fmt.Sprintf("%s can %s", d.user, strings.Join(namesOf(can), ", "))
	if len(cannot) > 0 {
		names := namesOf(cannot)
		text += fmt.Sprintf("; it cannot %s, for which `belfry roles --for %s` prints the GRANTs", strings.Join(names, ", "), strings.Join(names, ","))
	}
	d.ok(check, "%s", text)
	for _, p := range partly {
		d.lacking(check, HealthWarning, " and so cannot "+p.name+", of which it has a part", missing[p.name])
	}
	return true, nil
}

// lacking notes what is missing, each with the statement that gives it.
func (d *doctor) lacking(check string, status Health, why string, lacks []lack) {
	for _, l := range lacks {
		missing := strings.Join(l.Missing, ", ")
		d.note(check, status, fmt.Sprintf("GRANT %s ON %s TO %s", missing, l.Relation, d.quoted()), "%s lacks %s on %s%s", d.user, missing, l.Relation, why)
	}
}

// lack is what a user may not do with a relation: privileges as GRANT has them, with the
// columns where those are enough.
type lack struct {
	Relation string
	Missing  []string
}

// lacksOf is what the connected user lacks of what profiles need.
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
func (d *doctor) unreadable() string {
	return fmt.Sprintf("GRANT USAGE ON SCHEMA belfry TO %s; GRANT SELECT ON ALL TABLES IN SCHEMA belfry TO %[1]s; `belfry roles --for monitor --role %[1]s` prints them", d.quoted())
}
