package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// jobReport is everything about one job.
type jobReport struct {
	JobState

	Aborted    *job.Event       `json:"aborted"`    // who made it ABORTED, when and why; null where it is not
	Waits      text.Line        `json:"waits"`      // why messages are not sent now; "": none waits, or relays are sending them
	Remedy     text.Line        `json:"remedy"`     // what to do about that
	Deliveries *delivery.Counts `json:"deliveries"` // null where no row was written
	Revisions  []job.Revision   `json:"revisions"`
}

// State is the job's, for whoever knows of the type only that.
func (r jobReport) State() JobState { return r.JobState }

// Rows are what has become of the job's rows; nil: none was written.
func (r jobReport) Rows() *delivery.Counts { return r.Deliveries }

func showJob(ctx context.Context, env *operation.Env, in operation.JobRef) (r jobReport, err error) {
	if r.Job, err = env.Jobs.Get(ctx, in.ID); err != nil {
		return jobReport{}, operation.NoSuchJob(err)
	}
	states, err := JobStates(ctx, env.DB, []job.Job{r.Job})
	if err != nil {
		return jobReport{}, err
	}
	r.JobState = states[0]
	if r.Status == job.Aborted {
		if r.Aborted, err = env.Jobs.LastEvent(ctx, in.ID, job.EventAborted); err != nil {
			return jobReport{}, err
		}
	}
	if r.Messages.Waiting > 0 {
		still, err := delivery.StandstillOf(ctx, env, in.ID)
		if err != nil {
			return jobReport{}, err
		}
		r.Waits, r.Remedy = still.Why, still.Remedy
	}
	if r.Revisions, err = env.Jobs.Revisions(ctx, in.ID); err != nil {
		return jobReport{}, operation.NoSuchJob(err)
	}
	if r.RowsWritten > 0 {
		counts, err := delivery.Deliveries(ctx, env.DB, in.ID)
		if err != nil {
			return jobReport{}, operation.NoSuchJob(err)
		}
		r.Deliveries = &counts
	}
	return r, nil
}

// jobText prints what there is to say about a job, a field to a line.
func jobText(p *text.Doc, _ operation.JobRef, r jobReport) {
	j, field := r.Job, p.Field
	field("job", "%d, %s", j.ID, j.Type)
	field("status", "%s%s", r.Shown(), NextStep(j))
	if by := r.Aborted; by != nil {
		why := ""
		if by.Reason != "" {
			why = ": " + by.Reason
		}
		field("aborted", "%s by %s%s", p.Clock(by.At), by.Actor, why)
	}
	if r.HaltedAt != nil {
		field("halted", "since %s, everything is; `belfry unhalt` ends it", p.Clock(*r.HaltedAt))
	}
	if j.Throttle != "" {
		field("throttled", "%s", ThrottledBy(j))
	}
	if j.GroupID != nil {
		field("group", "%s", j.GroupID)
	}
	showContent(j, field)
	lane := j.Lane
	if r.Deliveries != nil && r.Deliveries.LanePaused {
		lane += " (paused, and holds the messages; `belfry lanes resume " + j.Lane + "`)"
	}
	field("lane", "%s, priority %d", lane, j.Priority)
	field("requested", "%s by %s", p.Clock(j.CreatedAt), j.RequestedBy)
	if j.IdempotencyKey != nil {
		field("idempotency key", "%s", *j.IdempotencyKey)
	}
	if text := approvalOf(p.Times, j); text != "" {
		field("approval", "%s", text)
	}
	field("due", "%s", p.Clock(j.ScheduleAt))
	for _, at := range []struct {
		name string
		at   *time.Time
	}{{"deliver", j.DeliverAt}, {"expires", j.ExpiresAt}, {"started", j.StartedAt}, {"finished", j.FinishedAt}} {
		if at.at != nil {
			field(at.name, "%s", p.Clock(*at.at))
		}
	}
	if own := ownSettings(j); own != "" {
		field("settings", "%s", own)
	}
	showWalk(p.Times, j, field)
	if r.Messages.Messages > 0 {
		field("messages", "%s", MessagesText(r.Messages))
	}
	if r.Messages.Waiting > 0 && len(r.Waits) > 0 {
		field("waiting", "%s", delivery.Standstill{Why: r.Waits, Remedy: r.Remedy}.Text())
	}
	if r.Deliveries != nil {
		field("rows", "%s", deliveries(j, *r.Deliveries))
		if text := mediaText(*r.Deliveries); text != "" {
			field("by medium", "%s", text)
		}
		if n := r.Deliveries.Dead; n > 0 {
			field("dead letters", "%s; `belfry dead-letters list --job %d` lists them", text.Grouped(n), j.ID)
		}
	}
	if n := len(r.Revisions); n > 0 {
		last := r.Revisions[n-1]
		field("revisions", "%s, the last at cursor %s by %s; `belfry jobs revisions %d`", text.Counted(int64(n), "correction"), last.Cursor, last.EditedBy, j.ID)
	}
	if j.LastError != "" {
		field("last error", "%s", j.LastError)
	}
}

// showContent prints what is said, and to whom.
func showContent(j job.Job, field func(name, format string, args ...any)) {
	field("category", "%s", j.Category)
	field("title", "%s", j.Title)
	if j.Body != "" {
		field("body", "%s", j.Body)
	}
	if string(j.Data) != "{}" {
		field("data", "%s", operation.Compacted(j.Data))
	}
	if string(j.Variants) != "{}" {
		field("variants", "%s", locales(j.Variants))
	}
	if j.Type != outbox.TypeInbox { // which writes no messages
		field("route", "%s", strings.Join(j.Route, ", "))
	}
	field("audience", "%s", j.Audience)
}

// showWalk prints how far the job got and what its accounts say.
func showWalk(times text.Times, j job.Job, field func(name, format string, args ...any)) {
	field("progress", "%s; %s, %s read in %s", WalkDone(j), text.Counted(j.RowsWritten, "row"), text.Counted(j.ChannelsRead, "channel"), text.Counted(j.Chunks, "chunk"))
	if j.ChannelsRead > 0 {
		field("accounts", "%s", accounts(j))
	}
	if j.Skipped > 0 {
		field("skipped", "%s; `belfry jobs skips %d` lists them", text.Counted(j.Skipped, "recipient"), j.ID)
	}
	if j.ThrottledMS > 0 {
		field("held back", "%s in all", text.Short(heldBack(j)))
	}
	if j.RecalledAt != nil {
		field("recalled", "%s at %s", text.Counted(j.Recalled, "row"), times.Clock(*j.RecalledAt))
	}
	if j.Erased > 0 {
		field("erased", "%s of people who were forgotten", text.Counted(j.Erased, "row"))
	}
	if j.Bound != nil {
		field("cursor", "%s of bound %s", text.OrNone(j.Cursor), text.OrNone(*j.Bound))
	}
	if lost := j.Attempts - 1; lost > 0 {
		field("runs lost", "%d before the last one", lost)
	}
	if j.Takeovers > 0 {
		field("take-overs", "%d in a row without a committed chunk", j.Takeovers)
	}
	if j.Runner != "" && j.HeartbeatAt != nil {
		backend := "its connection is hidden by a pooler: only the heartbeat tells whether it lives"
		if j.BackendPID != nil {
			backend = "server process " + strconv.Itoa(int(*j.BackendPID))
		}
		field("runner", "%s, heartbeat %s, %s", j.Runner, times.Clock(*j.HeartbeatAt), backend)
	}
}

// deliveries is what became of a job's rows.
func deliveries(j job.Job, c delivery.Counts) string {
	list := []struct {
		n    int64
		what string
		of   outbox.Reason // whose reasons are told
	}{
		{c.Unread, "unread", ""}, {c.Read, "read", ""}, {c.Withdrawn, "withdrawn", ""},
		{c.Pending + c.Queued - c.Held, "to be sent", outbox.ReasonWaiting}, {c.Held, "held", outbox.ReasonHeld}, {c.Processing, "being sent", outbox.ReasonSending},
		{c.Sent, "sent", ""}, {c.Dead, "dead", outbox.ReasonDead}, {c.Cancelled, "cancelled", outbox.ReasonCancelled},
	}
	var parts []string
	for _, one := range list {
		if one.n > 0 {
			parts = append(parts, text.Grouped(one.n)+" "+one.what+whyText(c.Why, one.of))
		}
	}
	line := strings.Join(parts, ", ")
	if !c.Complete {
		line += fmt.Sprintf(", of the channels up to %d; `belfry jobs audit %d` counts to the end", c.UpTo, j.ID)
	}
	return text.OrNone(line)
}

// mediaText is where the messages are, or ended, if that is more than one medium.
func mediaText(c delivery.Counts) string {
	var parts []string
	n := 0
	for i, m := range c.Media {
		if i == 0 || m.Medium != c.Media[i-1].Medium {
			n++
			parts = append(parts, m.Medium+": ")
		} else {
			parts[n-1] += ", "
		}
		parts[n-1] += text.Grouped(m.Messages) + " " + string(m.Reason)
		if m.Why != "" {
			parts[n-1] += " (" + string(m.Why) + ")"
		}
	}
	if n < 2 {
		return ""
	}
	return strings.Join(parts, "; ")
}

// whyText is how many messages have which reason, in brackets.
func whyText(t delivery.Tally, of outbox.Reason) string {
	counted := t[of]
	if of == outbox.ReasonHeld {
		counted = t[outbox.ReasonWaiting]
	}
	var parts []string
	for _, why := range outbox.Whys(of) {
		if n := counted[why]; n > 0 {
			parts = append(parts, text.Grouped(n)+" "+string(why))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// accounts is where every channel that was read went.
func accounts(j job.Job) string {
	line := fmt.Sprintf("%s read = %s out of audience + %s written", text.Grouped(j.ChannelsRead), text.Grouped(j.ChannelsRead-j.ChannelsMatched), text.Grouped(j.RowsWritten))
	if j.Declined > 0 {
		line += " + " + text.Grouped(j.Declined) + " declined"
	}
	if j.Skipped > 0 {
		line += " + " + text.Grouped(j.Skipped) + " skipped"
	}
	if rest := j.ChannelsMatched - j.RowsWritten - j.Declined - j.Skipped; rest != 0 {
		line += fmt.Sprintf("; %s do not add up, `belfry jobs audit %d` says where", text.Grouped(rest), j.ID)
	}
	return line
}

// ownSettings lists the settings of the walk that are the job's own.
func ownSettings(j job.Job) string {
	var own []string
	for _, s := range walkSettings(j) {
		if s.own {
			own = append(own, strings.TrimSuffix(s.column, "_ms")+" "+s.value)
		}
	}
	return strings.Join(own, ", ")
}

// locales lists those in which variants say something.
func locales(variants json.RawMessage) string {
	var by map[string]json.RawMessage
	if err := json.Unmarshal(variants, &by); err != nil { // the database lets objects in only
		return text.OrNone("")
	}
	return text.OrNone(strings.Join(slices.Sorted(maps.Keys(by)), ", "))
}

// hideLocation implements locating. The revisions are a copy already.
func (r *jobReport) HideLocation() {
	if r.Audience.Kind != channels.KindRadius {
		return
	}
	r.Waits, r.Remedy, r.Deliveries = nil, nil, nil
	for i := range r.Revisions {
		r.Revisions[i].Cursor = ""
	}
}
