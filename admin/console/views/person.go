package views

import (
	"cmp"
	"context"
	"html/template"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/admin/accounts"
	"github.com/belfryhq/belfry/admin/console/parts"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/text"
)

// Person has the notifications that a person got, will get and did not get, and the opt-outs.
type Person struct {
	Name         string
	Status       words.Status
	Facts        []Fact
	ToCome       []Entry
	History      []Entry
	Views        []parts.Link // everything, got, did not get
	Empty        string       // why there is no history
	First        bool         // the page has the newest entries
	Newest, Next string
	OptOuts      []OptOut
	Invalid      string // media with an invalid address
	OptOut       *OptOutForm
	Actions      []parts.Link
}

// Fact is a fact about a person.
type Fact struct {
	Name, Text string
	Time       template.HTML // if Text is empty
}

// Entry is a job or a single message with its outcome for the person.
type Entry struct {
	Title, Link, About, Why, Error, Attempts string
	Status                                   words.Status
	When                                     template.HTML
}

// OptOut is an opt-out, with the form that removes it.
type OptOut struct {
	Text, Reason string
	Since        template.HTML
	OptIn        *Form
}

// OptOutForm is the form of a new opt-out.
type OptOutForm struct {
	*Form

	Choices []parts.Choice
}

const (
	showParam = "_show" // the fate of the entries that are shown
	// OptOutPlace is the place of the forms of a person.
	OptOutPlace = "opt-outs"
)

// who returns the parameters that name the person.
func who(values url.Values) url.Values {
	who := make(url.Values)
	for _, name := range []string{"channel", "external_id"} {
		if len(values[name]) > 0 {
			who[name] = values[name]
		}
	}
	return who
}

// NewPerson returns a person as the caller may see it. values are the parameters of the result.
func NewPerson(ctx context.Context, r Request, p accounts.Person, values url.Values) *Person {
	v := &Person{Name: cmp.Or(values.Get("external_id"), unmasked(p.ExternalID), text.Int(p.ChannelID)), First: values.Get("before") == "",
		Facts: factsOf(r, p), Status: personStatus(p)}
	show := fate(r.Values.Get(showParam))
	for _, one := range []struct {
		show fate
		name string
	}{{"", "Everything"}, {fateGot, "Got"}, {fateMissed, "Did not get"}} {
		v.Views = append(v.Views, parts.Link{Name: one.name, Link: r.Link(PersonOperation, showing(one.show, values)), Here: one.show == show})
	}
	slices.SortStableFunc(p.ToCome, func(a, b accounts.HistoryLine) int {
		return cmp.Or(a.StartsAt, &a.CreatedAt).Compare(*cmp.Or(b.StartsAt, &b.CreatedAt))
	})
	for _, l := range slices.Concat(p.History, p.ToCome) {
		switch e, of := newEntry(r, l, p.ChannelID); {
		case of == fateComing:
			v.ToCome = append(v.ToCome, e)
		case show == "" || of == show:
			v.History = append(v.History, e)
		}
	}
	if !v.First {
		v.Newest = r.Link(PersonOperation, showing(show, parts.Without(values, "before")))
	}
	if p.Next != "" {
		older := maps.Clone(values)
		older.Set("before", p.Next)
		v.Next = r.Link(PersonOperation, showing(show, older))
	}
	v.Empty = "Nothing was sent to this person yet."
	if show != "" || !v.First || v.Next != "" || len(v.ToCome) > 0 {
		v.Empty = "There is nothing of this kind among these entries."
	}
	v.addOptOuts(ctx, r, p, who(values))
	erase := who(values)
	erase.Set(BackParam, r.Link(PersonOperation, nil))
	v.Actions = slices.Concat(r.action("send", "Send a message…", who(values)), r.action("channels forget", "Erase all data…", erase))
	return v
}

// showing returns the parameters of a page that shows the entries of a fate.
func showing(of fate, values url.Values) url.Values {
	with := maps.Clone(values)
	if of != "" {
		with.Set(showParam, string(of))
	}
	return with
}

// unmasked returns a text, or "" if it is masked.
func unmasked(text string) string {
	if text == operation.Masked {
		return ""
	}
	return text
}

// personStatus returns whether the person can get messages.
func personStatus(p accounts.Person) words.Status {
	switch {
	case p.Gone:
		return words.Status{Word: "Deleted", Tone: text.Idle}
	case !p.Active:
		return words.Status{Word: "Not active: nothing is sent", Tone: words.ToneStop}
	case slices.ContainsFunc(p.OptOuts.OptOuts, func(o channels.OptOut) bool { return o.Category == channels.Any && o.Medium == channels.Any }):
		return words.Status{Word: "Opted out of everything", Tone: words.ToneStop}
	case len(p.Media) == 0:
		return words.Status{Word: "Has no address", Tone: words.ToneStop}
	}
	return words.Status{Word: "Can be reached", Tone: text.Done}
}

// factsOf returns the facts about a person, without those that are masked.
func factsOf(r Request, p accounts.Person) (facts []Fact) {
	add := func(name, value string) {
		if value = unmasked(value); value != "" {
			facts = append(facts, Fact{Name: name, Text: text.OneLine(value, 200)})
		}
	}
	add("Channel", text.Int(p.ChannelID))
	if p.Gone {
		return facts
	}
	add("External id", p.ExternalID)
	add("Reached by", cmp.Or(strings.Join(p.Media, ", "), "no address"))
	add("Platform", p.Platform)
	add("Language", cmp.Or(p.Locale, "unknown"))
	add("Time zone", cmp.Or(p.TimeZone, "unknown"))
	add("Place", p.Place)
	if p.CreatedAt != nil {
		facts = append(facts, Fact{Name: "Known since", Time: words.When(r.Zone, *p.CreatedAt)})
	}
	return facts
}

// newEntry returns the result of a job or a single message for a person.
func newEntry(r Request, l accounts.HistoryLine, id int64) (Entry, fate) {
	s, why, of := outcomeOf(l)
	e := Entry{Status: s, Why: why, Error: text.OneLine(unmasked(l.Error), 300)}
	if l.Type == accounts.TypeActivity {
		e.Title, e.About = cmp.Or(text.OneLine(unmasked(l.Title), 120), "Single message"), words.AboutJob("", "Single message", l.Category)
	} else {
		e.Title, e.Link = cmp.Or(text.OneLine(l.JobTitle, 120), "Without a title"), r.Link(JobOperation, url.Values{"id": {text.Int(l.JobID)}})
		e.About = words.AboutJob("", "Job "+text.Int(l.JobID), l.Type, l.Category)
	}
	at := cmp.Or(l.Withdrawn, l.ReadAt, l.SentAt, l.DeadAt, l.StartsAt, &l.CreatedAt)
	e.When = words.When(r.Zone, *at)
	if l.Medium != "" {
		e.Attempts = r.Link("dead-letters show", url.Values{"job": {text.Int(l.JobID)}, "channel": {text.Int(id)}})
	}
	return e, of
}

// addOptOuts adds the opt-outs, the invalid addresses, and their forms.
func (v *Person) addOptOuts(ctx context.Context, r Request, p accounts.Person, who url.Values) {
	for _, one := range p.OptOuts.OptOuts {
		what := maps.Clone(who)
		if one.Category != channels.Any {
			what.Set("category", one.Category)
		}
		if one.Medium != channels.Any {
			what.Set("medium", one.Medium)
		}
		scope := "No messages" + scopeOf(one)
		if one.Category == channels.Any && one.Medium == channels.Any {
			scope = "No messages at all"
		}
		o := OptOut{Text: scope, Reason: text.OneLine(one.Reason, 200), Since: words.When(r.Zone, one.OptedOutAt),
			OptIn: r.Form("channels opt-in", OptOutPlace, what)}
		v.OptOuts = append(v.OptOuts, o)
	}
	var invalid []string
	for _, one := range p.InvalidAddresses {
		if !slices.Contains(invalid, one.Medium) {
			invalid = append(invalid, one.Medium)
		}
	}
	if v.Invalid = strings.Join(invalid, ", "); p.Gone {
		return
	}
	if form := r.Form("channels opt-out", OptOutPlace, who); form != nil {
		v.OptOut = &OptOutForm{form, []parts.Choice{
			parts.Names("category", "Category", categories(ctx, r)).With(form.Values.Get("category")),
			parts.Names("medium", "Medium", mediaOf(p.Media)).With(form.Values.Get("medium"))}}
	}
}

// categories returns the names of the categories, or none if they cannot be read.
func categories(ctx context.Context, r Request) (names []string) {
	out, _ := r.Query(ctx, CategoriesOperation, nil)
	list, _ := out.(operation.List[channels.Category])
	for _, c := range list.Items {
		names = append(names, c.Name)
	}
	return names
}

// mediaOf returns the media of a person and the common ones, sorted.
func mediaOf(known []string) []string {
	all := slices.Concat(known, operation.Enums()["media"])
	slices.Sort(all)
	return slices.Compact(all)
}
