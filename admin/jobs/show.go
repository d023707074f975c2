package jobs

import (
	"context"
	"encoding/json"
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

// jobReport is the result of `jobs show`.
type jobReport struct {
	JobState

	Aborted    *job.Event       `json:"aborted"`    // the event of the abort; null unless the job is ABORTED
	Waits      text.Line        `json:"waits"`      // why messages are not sent now; "": none waits, or relays are sending them
	Remedy     text.Line        `json:"remedy"`     // what to do about that
	Deliveries *delivery.Counts `json:"deliveries"` // null if no row was written, and with brief
	Revisions  []job.Revision   `json:"revisions"`
}

// State returns the state of the job, for other packages.
func (r jobReport) State() JobState { return r.JobState }

// Rows returns the counts of the job's rows, or nil if none was written.
func (r jobReport) Rows() *delivery.Counts { return r.Deliveries }

// Stop returns the event that aborted the job, or nil.
func (r jobReport) Stop() *job.Event { return r.Aborted }

// Corrections returns the content of the job before each correction.
func (r jobReport) Corrections() []job.Revision { return r.Revisions }

// jobShow is the input of `jobs show`.
type jobShow struct {
	operation.JobRef
	Brief bool `flag:"brief" help:"without the counts of rows by result, which take up to two seconds"`
}

func showJob(ctx context.Context, env *operation.Env, in jobShow) (r jobReport, err error) {
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
	if r.RowsWritten > 0 && !in.Brief {
		counts, err := delivery.Deliveries(ctx, env.DB, in.ID)
		if err != nil {
			return jobReport{}, operation.NoSuchJob(err)
		}
		r.Deliveries = &counts
	}
	return r, nil
}

// jobText writes the fields of a job.
func jobText(d *text.Doc, _ jobShow, r jobReport) {
	j := r.Job
	d.Field("job", "%d, %s", j.ID, j.Type)
	d.Field("status", "%s%s", r.Shown(), NextStep(j))
	if by := r.Aborted; by != nil {
		reason := ""
		if by.Reason != "" {
			reason = ": " + by.Reason
		}
		d.Field("aborted", "%s by %s%s", by.At, by.Actor, reason)
	}
	if r.HaltedAt != nil {
		d.Field("halted", "since %s, with all jobs; %s", r.HaltedAt, endHalt())
	}
	if j.Throttle != "" {
		d.Field("throttled", "%s", ThrottledBy(j))
	}
	if j.GroupID != nil {
		d.Field("group", "%s", text.Command("jobs list").Flag("group", j.GroupID).As(j.GroupID.String()))
	}
	showContent(d, j)
	d.Field("lane", "%s, priority %d", text.Ref("lane", j.Lane), j.Priority)
	if r.Deliveries != nil && r.Deliveries.LanePaused {
		d.Field("lane paused", "the lane holds the messages; %s", text.Command("lanes resume", j.Lane).To("resume the lane"))
	}
	d.Field("requested", "%s by %s", j.CreatedAt, j.RequestedBy)
	if j.IdempotencyKey != nil {
		d.Field("idempotency key", "%s", *j.IdempotencyKey)
	}
	if line := approvalLine(j); line != nil {
		d.Field("approval", "%s", line)
	}
	d.Field("due", "%s", j.ScheduleAt)
	for _, of := range []struct {
		name string
		at   *time.Time
	}{{"deliver", j.DeliverAt}, {"expires", j.ExpiresAt}, {"started", j.StartedAt}, {"finished", j.FinishedAt}} {
		if of.at != nil {
			d.Field(of.name, "%s", of.at)
		}
	}
	if own := ownSettings(j); own != "" {
		d.Field("settings", "%s", own)
	}
	showWalk(d, j)
	if r.Messages.Messages > 0 {
		d.Field("messages", "%s", MessagesText(r.Messages))
	}
	if r.Messages.Waiting > 0 && len(r.Waits) > 0 {
		d.Field("waiting", "%s", delivery.Standstill{Why: r.Waits, Remedy: r.Remedy}.Text())
	}
	if r.Deliveries != nil {
		d.Field("rows", "%s", deliveries(j, *r.Deliveries))
		if media := mediaText(*r.Deliveries); media != "" {
			d.Field("by medium", "%s", media)
		}
		if n := r.Deliveries.Dead; n > 0 {
			d.Field("dead letters", "%s; %s", text.Count(n), text.Command("dead-letters list").Flag("job", j.ID).To("list them"))
		}
	}
	if n := len(r.Revisions); n > 0 {
		last := r.Revisions[n-1]
		d.Field("revisions", "%s, the last at cursor %s by %s; %s", text.Counted(int64(n), "correction"), last.Cursor, last.EditedBy,
			text.Command("jobs revisions", j.ID).To("list them"))
	}
	if j.LastError != "" {
		d.Field("last error", "%s", j.LastError)
	}
}

// showContent writes the content and the audience of a job.
func showContent(d *text.Doc, j job.Job) {
	d.Field("category", "%s", text.Ref("category", j.Category))
	d.Field("title", "%s", j.Title)
	if j.Body != "" {
		d.Field("body", "%s", j.Body)
	}
	if string(j.Data) != "{}" {
		d.Field("data", "%s", operation.CompactJSON(j.Data))
	}
	if string(j.Variants) != "{}" {
		d.Field("variants", "%s", locales(j.Variants))
	}
	if j.Type != outbox.TypeInbox { // which writes no messages
		d.Field("route", "%s", strings.Join(j.Route, ", "))
	}
	d.Field("audience", "%s", j.Audience)
}

// showWalk writes the progress of the walk and its counts.
func showWalk(d *text.Doc, j job.Job) {
	d.Field("progress", "%s; %s, %s read in %s", WalkDone(j), text.Counted(j.RowsWritten, "row"),
		text.Counted(j.ChannelsRead, "channel"), text.Counted(j.Chunks, "chunk"))
	if j.ChannelsRead > 0 {
		d.Field("accounts", "%s", accounts(j))
	}
	if j.Skipped > 0 {
		d.Field("skipped", "%s; %s", text.Counted(j.Skipped, "recipient"), text.Command("jobs skips", j.ID).To("list them"))
	}
	if j.ThrottledMS > 0 {
		d.Field("held back", "%s in all", time.Duration(j.ThrottledMS)*time.Millisecond)
	}
	if j.RecalledAt != nil {
		d.Field("recalled", "%s at %s", text.Counted(j.Recalled, "row"), j.RecalledAt)
	}
	if j.Erased > 0 {
		d.Field("erased", "%s of forgotten recipients", text.Counted(j.Erased, "row"))
	}
	if j.Bound != nil {
		d.Field("cursor", "%s of bound %s", text.OrNone(j.Cursor), text.OrNone(*j.Bound))
	}
	if lost := j.Attempts - 1; lost > 0 {
		d.Field("runs lost", "%d before the last one", lost)
	}
	if j.Takeovers > 0 {
		d.Field("take-overs", "%d in a row without a committed chunk", j.Takeovers)
	}
	if j.Runner != "" && j.HeartbeatAt != nil {
		backend := "the connection is hidden by a pooler; only the heartbeat shows whether the run is alive"
		if j.BackendPID != nil {
			backend = "server process " + strconv.Itoa(int(*j.BackendPID))
		}
		d.Field("runner", "%s, heartbeat %s, %s", j.Runner, j.HeartbeatAt, backend)
	}
}

// deliveries returns the counts of a job's rows by fate, with the reasons.
func deliveries(j job.Job, c delivery.Counts) text.Line {
	list := []struct {
		n    int64
		what string
		of   outbox.Reason // its reasons are counted; empty means none
	}{
		{c.Unread, "unread", ""}, {c.Read, "read", ""}, {c.Withdrawn, "withdrawn", ""},
		{c.Pending + c.Queued - c.Held, "to be sent", outbox.ReasonWaiting}, {c.Held, "held", outbox.ReasonHeld},
		{c.Processing, "being sent", outbox.ReasonSending},
		{c.Sent, "sent", ""}, {c.Dead, "dead", outbox.ReasonDead}, {c.Cancelled, "cancelled", outbox.ReasonCancelled},
	}
	var parts []string
	for _, one := range list {
		if one.n > 0 {
			parts = append(parts, text.Grouped(one.n)+" "+one.what+reasonsText(c.Why, one.of))
		}
	}
	line := text.Sprintf("%s", text.OrNone(strings.Join(parts, ", ")))
	if !c.Complete {
		line = text.Sprintf("%s, of the channels up to %d; %s", line, c.UpTo, text.Command("jobs audit", j.ID).To("count all"))
	}
	return line
}

// mediaText returns the counts of messages by medium, if there is more than one medium.
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

// reasonsText returns the counts of messages by reason, in brackets.
func reasonsText(t delivery.Tally, of outbox.Reason) string {
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

// accounts returns the sum of a job's channels by fate.
func accounts(j job.Job) text.Line {
	line := text.Sprintf("%s read = %s out of audience + %s written", text.Count(j.ChannelsRead),
		text.Count(j.ChannelsRead-j.ChannelsMatched), text.Count(j.RowsWritten))
	if j.Declined > 0 {
		line = text.Sprintf("%s + %s declined", line, text.Count(j.Declined))
	}
	if j.Skipped > 0 {
		line = text.Sprintf("%s + %s skipped", line, text.Count(j.Skipped))
	}
	if rest := j.ChannelsMatched - j.RowsWritten - j.Declined - j.Skipped; rest != 0 {
		line = text.Sprintf("%s; %s do not add up; %s", line, text.Count(rest), text.Command("jobs audit", j.ID).To("find them"))
	}
	return line
}

// ownSettings returns the settings of the walk that are set for the job.
func ownSettings(j job.Job) string {
	var own []string
	for _, s := range walkSettings(j) {
		if s.own {
			own = append(own, strings.TrimSuffix(s.column, "_ms")+" "+s.value)
		}
	}
	return strings.Join(own, ", ")
}

// locales returns the locales of variants.
func locales(variants json.RawMessage) string {
	var by map[string]json.RawMessage
	if err := json.Unmarshal(variants, &by); err != nil { // the column contains objects only
		return text.OrNone("")
	}
	return text.OrNone(strings.Join(slices.Sorted(maps.Keys(by)), ", "))
}

// HideLocation implements the interface of results that depend on the location of recipients. Revisions is
// a copy.
func (r *jobReport) HideLocation() {
	if r.Audience.Kind != channels.KindRadius {
		return
	}
	r.Waits, r.Remedy, r.Deliveries = nil, nil, nil
	for i := range r.Revisions {
		r.Revisions[i].Cursor = ""
	}
}
