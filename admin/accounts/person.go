package accounts

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/admin/recipients"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/text"
)

// historyKey is the end of a page of a history as text: JOB:ACTIVITY.
type historyKey struct{ HistoryKey }

// UnmarshalText parses both ids.
func (k *historyKey) UnmarshalText(text []byte) error {
	first, second, ok := strings.Cut(string(text), ":")
	jobID, err1 := strconv.ParseInt(first, 10, 64)
	activityID, err2 := strconv.ParseInt(second, 10, 64)
	if !ok || err1 != nil || err2 != nil || jobID < 0 || activityID > 0 {
		return &operation.NotAllowedError{Allowed: "JOB:ACTIVITY, such as 17:-4, with 0 for none"}
	}
	k.HistoryKey = HistoryKey{JobID: jobID, ActivityID: activityID}
	return nil
}

// MarshalText renders both ids.
func (k historyKey) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%d:%d", k.JobID, k.ActivityID), nil
}

// personPage is the input of `channels show`.
type personPage struct {
	ID         *int64      `arg:"[CHANNEL]" is:"a channel's id"`
	ExternalID *string     `flag:"external-id" label:"ID" help:"the channel with this external ID"`
	Limit      int         `flag:"limit" label:"N" help:"at most N jobs and single messages, 1 to 200 (default 50)" min:"1" max:"200" default:"50"`
	Before     *historyKey `flag:"before" label:"JOB:ACTIVITY" help:"only entries after these, for the next page"`
}

func (in personPage) Check(operation.Operation, time.Time) error {
	if (in.ID != nil) == (in.ExternalID != nil) {
		return operation.Invalid("", "channels show takes either CHANNEL or --external-id ID")
	}
	return nil
}

// Person is one channel with its history.
type Person struct {
	ExternalID         string        `json:"external_id" mask:"text"` // empty if the channel was deleted
	Gone               bool          `json:"gone"`                    // the channel does not exist; the other fields are its former data
	Active             bool          `json:"active"`
	Platform           string        `json:"platform"`
	Locale             string        `json:"locale"`            // empty if unknown
	TimeZone           string        `json:"time_zone"`         // empty if unknown
	Place              string        `json:"place" mask:"text"` // latitude and longitude; empty if unknown
	Media              []string      `json:"media"`             // media for which it has an address
	CreatedAt          *time.Time    `json:"created_at"`        // null if the relation does not record it
	recipients.OptOuts               // includes the channel's id
	ToCome             []HistoryLine `json:"to_come"` // PENDING jobs, on the first page
	History            []HistoryLine `json:"history"` // other jobs and single messages, newest first
	Next               string        `json:"next"`    // value of before for the next page; empty on the last page
}

// NextPage returns Next.
func (p Person) NextPage() string { return p.Next }

func personOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "channels show", Short: "Show one channel and the result of each job for it, with reasons",
		Usage: "{CHANNEL | --external-id ID}", Role: operation.Viewer, Rows: "history",
		Long: `Show a channel, its opt-outs, and the result of each job for it, newest first, with the
reasons of ` + "`belfry jobs recipients`" + `: the notification, the message and its medium, the time
of the next attempt, or the reason why it is not sent or does not exist. Single messages have
negative ids and are sorted among the jobs by time. "upcoming" lists, of the newest
PENDING jobs, those whose audience includes the channel.

Each job costs a few index lookups, whatever its size. For a deleted channel, given by its id,
the list contains the jobs that have a row of it. The CSV contains the history.`,
		Example: `  belfry channels show --external-id user-4711
  belfry channels show 4711 --limit 200 -o csv`,
	}, showPerson, personText)
}

func showPerson(ctx context.Context, env *operation.Env, in personPage) (Person, error) {
	id, external, err := recipients.ForgetInput{ID: in.ID, ExternalID: in.ExternalID}.Find(ctx, env)
	if err != nil {
		return Person{}, err
	}
	options := HistoryOptions{Limit: in.Limit}
	if in.Before != nil {
		options.Before = in.Before.HistoryKey
	}
	h, err := ReadHistory(ctx, env.DB, env.Channels, id, external, options)
	if err != nil {
		return Person{}, err
	}
	if h.Gone && h.Next == nil && len(h.Waiting)+len(h.Lines) == 0 && in.Before == nil {
		return Person{}, fmt.Errorf("%w with id %d in %s", channels.ErrNoChannel, id, env.Channels.Relation())
	}
	p := Person{Gone: h.Gone, Media: []string{}, CreatedAt: h.CreatedAt, ToCome: h.Waiting, History: h.Lines}
	if h.Next != nil {
		p.Next = fmt.Sprintf("%d:%d", h.Next.JobID, h.Next.ActivityID)
	}
	if p.ToCome, err = notByRadius(ctx, env, p.ToCome); err != nil {
		return Person{}, err
	}
	if p.History, err = notByRadius(ctx, env, p.History); err != nil {
		return Person{}, err
	}
	if p.OptOuts, err = recipients.OptOutsOf(ctx, env, id); err != nil {
		return Person{}, err
	}
	if err = p.describe(ctx, env, id); err != nil {
		return Person{}, err
	}
	return p, nil
}

// describe reads the channel.
func (p *Person) describe(ctx context.Context, env *operation.Env, id int64) error {
	found, err := env.Channels.RecipientsBare(ctx, env.Reads(), []int64{id})
	if err != nil || len(found) == 0 {
		return err
	}
	r := found[0]
	p.ExternalID, p.Active, p.Platform, p.Locale, p.TimeZone = r.ExternalID, r.Active, r.Platform, r.Locale, r.TimeZone
	var addresses map[string]json.RawMessage
	if json.Unmarshal(r.Addresses, &addresses) == nil { // the contract requires an object
		p.Media = slices.Sorted(maps.Keys(addresses))
	}
	latitude, longitude, err := env.Channels.Place(ctx, env.Reads(), id)
	if err == nil && latitude != nil && longitude != nil {
		p.Place = fmt.Sprintf("%g, %g", *latitude, *longitude)
	}
	return err
}

func personText(p *text.Doc, in personPage, out Person) {
	if in.Before == nil {
		whoText(p, out)
		p.Heading("does not want")
		recipients.OptOutsText(p, operation.ChannelRef{}, out.OptOuts)
		if len(out.ToCome) > 0 {
			p.Heading("upcoming")
			p.Table(historyTable(out.ToCome))
		}
		p.Heading("jobs and single messages")
	}
	switch {
	case len(out.History) > 0:
		p.Table(historyTable(out.History))
	case in.Before != nil || out.Next != "":
		p.Line("these jobs have no row of channel %s", text.Ref("channel", out.ChannelID))
	default:
		p.Line("no job has begun, and no single message was sent to channel %s", text.Ref("channel", out.ChannelID))
	}
	if slices.ContainsFunc(slices.Concat(out.ToCome, out.History), func(l HistoryLine) bool { return l.Medium != "" }) {
		p.Note("to see each attempt of a message and each bypassed medium: %s",
			text.Command("dead-letters show").Usage(fmt.Sprintf("--job JOB --channel %d", out.ChannelID)))
	}
	operation.More(p, "before", out.Next)
}

// whoText writes the fields of the channel.
func whoText(p *text.Doc, out Person) {
	if out.Gone {
		p.Field("channel", "%d, deleted", out.ChannelID)
		return
	}
	active := ""
	if !out.Active {
		active = ", not active: nothing is sent to it"
	}
	p.Field("channel", "%d%s", out.ChannelID, active)
	p.Field("external id", "%s", out.ExternalID)
	p.Field("platform", "%s", out.Platform)
	p.Field("locale", "%s", cmp.Or(out.Locale, "unknown"))
	p.Field("time zone", "%s", cmp.Or(out.TimeZone, "unknown"))
	if out.Place != "" {
		p.Field("place", "%s", out.Place)
	}
	p.Field("addresses", "%s", cmp.Or(strings.Join(out.Media, ", "), "none"))
	if out.CreatedAt != nil {
		p.Field("created", "%s", out.CreatedAt)
	}
}

// historyTable has a line for each job or single message.
func historyTable(list []HistoryLine) *text.Table {
	t := text.NewTable(">JOB", "ENQUEUED", "CATEGORY", "TITLE", "STATUS", "OUTCOME", "DETAIL")
	t.Dispensable(30, "ENQUEUED", "CATEGORY", "STATUS")
	for _, l := range list {
		status := text.Status(l.Status)
		if l.Type == TypeActivity {
			status = text.Status(TypeActivity)
		}
		t.Add(text.Ref("job", l.JobID), l.CreatedAt, l.Category, text.OneLine(cmp.Or(l.JobTitle, l.Title), 40), status,
			l.Entry.Status(), historyText(l))
	}
	return t
}

// historyText describes a line like `jobs recipients`, with media and times before the error.
func historyText(l HistoryLine) text.Line {
	said := l.Entry
	said.Error = ""
	how := []any{said.Sentence()}
	if l.Medium != "" {
		by := "by " + l.Medium
		if l.Sender != "" {
			by += " through " + l.Sender
		}
		if l.Attempts > 1 {
			by += ", " + text.Counted(int64(l.Attempts), "attempt")
		}
		how = append(how, by)
	}
	for _, one := range []struct {
		what string
		at   *time.Time
	}{{"sent", l.SentAt}, {"next try", l.DueAt}, {"dead since", l.DeadAt}, {"read", l.ReadAt}, {"recalled", l.Withdrawn},
		{"the job begins", l.StartsAt}} {
		if one.at != nil {
			how = append(how, text.Sprintf("%s %s", one.what, *one.at))
		}
	}
	line := text.Join(how, "; ")
	if l.Error != "" {
		line = append(line, text.Text(": "+text.OneLine(l.Error, 200)))
	}
	return line
}

// notByRadius removes jobs to a radius from a history, for roles that read no contents.
func notByRadius(ctx context.Context, env *operation.Env, lines []HistoryLine) ([]HistoryLine, error) {
	if env.Role.ReadsContents() || len(lines) == 0 {
		return lines, nil
	}
	ids := make([]int64, 0, len(lines))
	for _, l := range lines {
		ids = append(ids, l.JobID)
	}
	hidden, err := env.ToRadius(ctx, ids)
	return slices.DeleteFunc(lines, func(l HistoryLine) bool { return slices.Contains(hidden, l.JobID) }), err
}
