// Package settings describes the settings of an installation with their values: a card for each kind.
package settings

import (
	"html/template"
	"net/url"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/console/parts"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
)

// Card is one kind of settings.
type Card struct {
	Title, About string
	Rows         []Row
	Empty        string // the text of an empty card
	Links        []parts.Link
	Fault        template.HTML
}

// Row is an object with its settings in words, or a setting with its value.
type Row struct {
	Name, Link, About string
	Status            words.Status // may be empty
	More              template.HTML
	Actions           []parts.Link
}

// Categories returns the card of the categories.
func Categories(list []channels.Category, site parts.Site) Card {
	card := Card{Title: "Categories", About: "The subjects of notifications, with routes, quiet hours and limits.",
		Links: site.Action("categories add", "Add a category…", nil)}
	for _, c := range list {
		of := []string{strings.Join(c.Route, ", then ")}
		if c.Quiet != nil {
			of = append(of, "quiet "+c.Quiet.String())
		}
		if c.Cap != nil {
			of = append(of, "at most "+text.Grouped(int64(c.Cap.Max))+" in "+words.Span(c.Cap.Window))
		}
		if c.MaxRecipients != nil {
			of = append(of, "up to "+text.Counted(int64(*c.MaxRecipients), "recipient"))
		}
		card.Rows = append(card.Rows, categoryRow(c, strings.Join(of, " · "), site))
	}
	return card
}

// categoryRow returns a category with the act that changes it.
func categoryRow(c channels.Category, about string, site parts.Site) Row {
	return Row{Name: c.Name, Link: site.Page("category", c.Name), About: about,
		Actions: site.Action("categories set", "Change…", url.Values{"category": {c.Name}})}
}

// Approvals returns the card of the categories whose jobs a second person approves.
func Approvals(list []channels.Category, site parts.Site) Card {
	card := Card{Title: "Approvals", About: "Jobs that a second person must approve before they start.",
		Empty: "No category demands an approval."}
	for _, c := range list {
		if c.ApprovalAbove == nil {
			continue
		}
		about := "above " + text.Counted(int64(*c.ApprovalAbove), "recipient")
		if *c.ApprovalAbove == 0 {
			about = "each job"
		}
		card.Rows = append(card.Rows, categoryRow(c, about, site))
	}
	return card
}

// Lanes returns the card of the lanes.
func Lanes(list []job.Lane, site parts.Site) Card {
	card := Card{Title: "Lanes", About: "The jobs of a lane run one after the other.",
		Empty: "No lane has jobs, and none was ever paused."}
	for _, l := range list {
		var of []string
		if l.Running != nil {
			of = append(of, "job "+text.Int(*l.Running)+" runs")
		}
		if l.Due > 0 {
			of = append(of, text.CountedTo(l.Due, job.LaneCounts, "job")+" due")
		}
		if l.Later > 0 {
			of = append(of, text.CountedTo(l.Later, job.LaneCounts, "job")+" later")
		}
		if len(of) == 0 {
			of = append(of, "no jobs")
		}
		r := Row{Name: l.Name, Link: site.Page("lane", l.Name), About: strings.Join(of, " · "),
			Status: words.Status{Word: "Open", Tone: text.Done}}
		act := "lanes pause"
		if l.PausedAt != nil {
			act, r.Status = "lanes resume", words.Status{Word: "Paused by " + l.PausedBy, Tone: words.ToneHold}
		}
		r.Actions = site.Action(act, "", url.Values{"lane": {l.Name}})
		card.Rows = append(card.Rows, r)
	}
	return card
}

// Limits returns the card of the limits of jobs.
func Limits(l job.Limits, site parts.Site) Card {
	card := Card{Title: "Limits", About: "The limits of jobs that authors request.",
		Empty: "No limit is set.", Links: site.Action("limits set", "Change…", nil)}
	add := func(name string, least, most *int, unit string) {
		var of []string
		if least != nil {
			of = append(of, "at least "+text.Grouped(int64(*least))+unit)
		}
		if most != nil {
			of = append(of, "at most "+text.Grouped(int64(*most))+unit)
		}
		if len(of) > 0 {
			card.Rows = append(card.Rows, Row{Name: name, About: strings.Join(of, ", ")})
		}
	}
	percent := func(share *float64) *int {
		if share == nil {
			return nil
		}
		n := int(*share*100 + 0.5)
		return &n
	}
	add("Priority", l.MinPriority, l.Priority, "")
	add("Recipients of a job", nil, l.MaxRecipients, "")
	add("Recipients a second", l.MinRowsPerSecond, l.MaxRowsPerSecond, "/s")
	add("Recipients of a chunk", l.MinChunkRows, l.MaxChunkRows, "")
	add("Time of a chunk", l.MinChunkTargetMS, l.ChunkTargetMS, " ms")
	add("Skipped recipients", nil, l.MaxSkips, "")
	add("Share of the time", percent(l.MinDutyCycle), percent(l.DutyCycle), " %")
	if l.HealthChecks {
		card.Rows = append(card.Rows, Row{Name: "Health checks", About: "required"})
	}
	return card
}

// Segments returns the card of the segments.
func Segments(list []channels.Segment, site parts.Site) Card {
	card := Card{Title: "Segments", About: "Named groups of recipients.",
		Empty: "There is no segment yet.", Links: site.Action("channels segment create", "Create a segment…", nil)}
	for _, s := range list {
		about := text.CountedTo(s.Members, channels.SegmentCounts, "member")
		if s.Description != "" {
			about = s.Description + " · " + about
		}
		card.Rows = append(card.Rows, Row{Name: s.Name, About: about,
			Actions: site.Action("channels segment add", "Add members…", url.Values{"name": {s.Name}})})
	}
	return card
}

// Users returns the card of the users.
func Users(list []access.User, site parts.Site) Card {
	card := Card{Title: "Users", About: "People who sign in by name.",
		Empty: "There is no user yet.", Links: site.Action("users add", "Add a user…", nil)}
	for _, u := range list {
		r := Row{Name: u.Name, About: u.Role.String(), More: "never signed in",
			Actions: site.Action("users set", "Change…", url.Values{"name": {u.Name}})}
		switch {
		case u.DisabledAt != nil:
			r.More, r.Status = "", words.Status{Word: "Disabled", Tone: words.ToneStop}
		case u.SignedInAt != nil:
			r.More = "signed in " + site.When(*u.SignedInAt)
		}
		card.Rows = append(card.Rows, r)
	}
	return card
}

// Tokens returns the card of the tokens that are valid now.
func Tokens(list []access.Token, site parts.Site) Card {
	card := Card{Title: "Tokens", About: "Programs that use the API.",
		Empty: "There is no valid token.", Links: site.Action("tokens create", "Create a token…", nil)}
	for _, t := range list {
		if t.RevokedAt != nil || t.ExpiresAt.Before(time.Now()) {
			continue
		}
		card.Rows = append(card.Rows, Row{Name: t.Name, About: t.Role.String(), More: "expires " + site.When(t.ExpiresAt),
			Actions: site.Action("tokens revoke", "Revoke…", url.Values{"name": {t.Name}})})
	}
	return card
}

// Sessions returns the card of the sessions.
func Sessions(list []access.Session, site parts.Site) Card {
	card := Card{Title: "Sessions", About: "Who is signed in now.",
		Empty: "Nobody is signed in with a session."}
	for _, s := range list {
		card.Rows = append(card.Rows, Row{Name: s.Name, About: s.Role.String() + " · by " + s.Via, More: "active " + site.When(s.UsedAt),
			Actions: site.Action("sessions revoke", "End…", url.Values{"id": {text.Int(s.ID)}})})
	}
	return card
}
