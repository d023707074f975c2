package draft

import (
	"cmp"
	"html/template"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/console/draw"
	"github.com/belfryhq/belfry/admin/console/parts"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/enqueue"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/admin/upcoming"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/text"
)

// Reach describes the recipients of a notification.
type Reach struct {
	Count   string // "42 recipients"
	About   string
	Tallies []Tally
	Less    []Tallied // recipients that get no message, or get it later
	Area    draw.Audience
	Lane    string // the jobs of the lane at that time
	Fault   template.HTML
}

// Tally is a breakdown of the recipients.
type Tally struct {
	Name string
	Of   []Tallied
}

// Tallied is a part of the recipients. Part is its share of the whole.
type Tallied struct{ Name, Amount, Part string }

// Review is the last step before a notification is enqueued.
type Review struct {
	Question string
	Facts    []parts.Field
	Approval string
	Late     string // the chosen time is in the past
	Bound    string
	Count    string // the number to type; "" if a click suffices
	Button   string
}

// talliedMost is the number of parts of a breakdown.
const talliedMost = 6

// NewReach describes a preview.
func NewReach(p *enqueue.Preview) *Reach {
	r := &Reach{Count: recipients(p), Area: draw.NewAudience(p.Audience)}
	if !p.Exact && p.LookedAt < p.Channels {
		r.About = "The parts are estimated from " + text.Grouped(p.LookedAt) + " of them."
	}
	of := []struct {
		name   string
		counts map[string]int64
	}{{"By language", p.Locales}, {"By platform", p.Platforms}}
	if p.HasMessages {
		of = slices.Insert(of, 0, struct {
			name   string
			counts map[string]int64
		}{"By first medium", p.Media})
	}
	for _, one := range of {
		if t := talliesOf(one.counts); len(t) > 0 {
			r.Tallies = append(r.Tallies, Tally{one.name, t})
		}
	}
	for _, one := range []struct {
		name string
		n    int64
	}{{"opted out", p.OptedOut}, {"no address", p.NoAddress}, {"invalid address", p.InvalidAddress},
		{"over the cap of the category", p.Capped}, {"in quiet hours, get it later", p.QuietHours}, {"text cannot be composed", p.BadContent}} {
		if one.n > 0 {
			r.Less = append(r.Less, Tallied{Name: one.name, Amount: text.Grouped(one.n)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.MissingAttributes)) {
		r.Less = append(r.Less, Tallied{Name: "no " + name + " for the text", Amount: text.Grouped(p.MissingAttributes[name])})
	}
	if p.Addressless != "" {
		r.Less = append(r.Less, Tallied{Name: p.Addressless + " has no addresses", Amount: "all"})
	}
	if p.Lane != nil {
		r.Lane = laneWords(p.Lane)
	}
	return r
}

// laneWords describes the other jobs of the lane.
func laneWords(l *upcoming.LaneConflicts) string {
	switch {
	case l.Held != "":
		return "Waits: " + l.Held + "."
	case len(l.Behind) > 0:
		return "Starts after " + operation.SomeNames(l.Behind) + " in lane " + l.Lane + "."
	case len(l.AheadOf) > 0:
		return "Delays " + operation.SomeNames(l.AheadOf) + " in lane " + l.Lane + "."
	case l.Unknown != "":
		return ""
	}
	return "Lane " + l.Lane + " is free at that time."
}

// recipients returns the number of recipients in words.
func recipients(p *enqueue.Preview) string {
	if p.AtMost > 0 && p.Channels <= p.AtMost {
		return "fewer than " + text.Counted(p.AtMost+1, "recipient")
	}
	return text.Counted(p.Channels, "recipient")
}

// talliesOf returns the largest counts, and the sum of the others.
func talliesOf(counts map[string]int64) (list []Tallied) {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	var all, rest int64
	for _, n := range counts {
		all += n
	}
	add := func(name string, n int64) {
		if n > 0 {
			list = append(list, Tallied{cmp.Or(name, "none"), text.Grouped(n), draw.Portion(float64(n), float64(all))})
		}
	}
	for i, name := range names {
		if i < talliedMost {
			add(name, counts[name])
		} else {
			rest += counts[name]
		}
	}
	add("others", rest)
	return list
}

// NewReview describes the notification that the form is bound to. late reports that its time is in the past, and clock
// is the name of the reader's zone.
func NewReview(s Source, p *enqueue.Preview, reach *Reach, role operation.Role, late bool, clock string) *Review {
	r := &Review{Bound: "Nothing is sent if the number of recipients has changed by then.", Button: "Send to " + reach.Count}
	when, at := "Now", s.Values.Get("at")
	if known, is := instant(at); is && known.After(time.Now()) {
		when = words.DayOf(s.Site.In(known), time.Now()) + " at " + s.Site.In(known).Format("15:04") + ", " + clock
		r.Button = "Schedule for " + reach.Count
	} else if at != "" && !is {
		when, r.Button = at, "Schedule for "+reach.Count
	}
	if late {
		r.Late = "The chosen time is in the past: it starts at once."
	}
	if s.Values.Get("max_recipients") == "" {
		r.Bound += " The job stops if its audience has grown by half when it runs."
	}
	var waits bool
	if r.Approval, waits = approval(s, p, role); waits {
		r.Button = "Submit for " + reach.Count
	}
	if p.Channels > operation.TypedAbove {
		r.Count = text.Int(p.Channels)
	}
	r.Question = r.Button + "?"
	fact := func(name, value string) {
		r.Facts = append(r.Facts, parts.Field{Name: name, Text: words.Escaped(value)})
	}
	fact("Title", s.Values.Get("title"))
	who := words.Sentence(p.Audience.String())
	if place := strings.TrimSpace(s.Fields.Get("near")); p.Audience.Kind == channels.KindRadius && isCity(place) {
		who += " (" + place + ")"
	}
	fact("Who", who+": "+reach.Count)
	fact("When", when)
	fact("How", words.AboutJob(s.Values.Get("lane"), append(strings.Split(s.Values.Get("type"), ","), s.Values.Get("category"))...))
	if rate := rateWords(s.Values.Get("max_rows_per_second"), p.Channels); rate != "" {
		fact("Rate", rate)
	}
	if reach.Lane != "" {
		fact("Other jobs", reach.Lane)
	}
	return r
}

// rateWords describes a limit of recipients per second, and the least time that it takes for all recipients.
func rateWords(limit string, recipients int64) string {
	perSecond, err := strconv.ParseInt(limit, 10, 64)
	switch {
	case err != nil:
		return ""
	case perSecond <= 0:
		return "No limit of recipients per second"
	}
	rate := "At most " + text.Counted(perSecond, "recipient") + " per second"
	if least := time.Duration(recipients/perSecond) * time.Second; least >= time.Minute {
		rate += ", so it takes at least " + words.Span(least)
	}
	return rate
}

// approval returns why a job is expected to wait for approval, or "", and whether it certainly does. A job may
// write up to its ceiling: its own, the confirmed count plus half of it, or its category's.
func approval(s Source, p *enqueue.Preview, role operation.Role) (why string, waits bool) {
	const needed = "A second person must approve it before it starts: "
	switch {
	case s.Values.Get("needs_approval") != "":
		return needed + "you ask for it.", true
	case role.NeedsApproval(p.Audience):
		return needed + "your role demands it for a radius.", true
	}
	i := slices.IndexFunc(s.Categories, func(c channels.Category) bool { return c.Name == s.Values.Get("category") })
	if i < 0 || s.Categories[i].ApprovalAbove == nil {
		return "", false
	}
	c, above := s.Categories[i], int64(*s.Categories[i].ApprovalAbove)
	ceiling, err := strconv.ParseInt(s.Values.Get("max_recipients"), 10, 64)
	if err != nil {
		if ceiling = p.Channels + max(p.Channels/2, 10); c.MaxRecipients != nil {
			ceiling = min(ceiling, int64(*c.MaxRecipients))
		}
	}
	switch {
	case above == 0:
		return needed + c.Name + " demands it of each job.", true
	case ceiling > above:
		return needed + c.Name + " demands it of jobs that may reach more than " + text.Counted(above, "recipient") +
			". This one may reach " + text.Grouped(ceiling) + ".", true
	}
	return "It waits for the approval of a second person if your jobs of " + c.Name + " reach more than " +
		text.Counted(above, "recipient") + " within an hour.", false
}
