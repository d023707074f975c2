package views

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/console/parts"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/doctor"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/outbox"
)

// Problem is something to do for an operator. Actions are the pages of the commands of its remedy.
type Problem struct {
	Status  words.Status
	Remedy  text.Line
	Actions []parts.Link
}

// The limits of a healthy database.
const (
	fullConnections = 0.9
	longTransaction = time.Hour
	longReplayLag   = time.Minute
)

// failedFor is the time for which a failed job is a problem.
const failedFor = 24 * time.Hour

// HealthSummary names the server, its connections, and the live relays.
func HealthSummary(s doctor.ServerHealth) string {
	relays := 0
	for _, n := range s.Relays {
		relays += n
	}
	version, _, _ := strings.Cut(s.Server, " ")
	return fmt.Sprintf("PostgreSQL %s · %s of %s · %s", version, text.Grouped(int64(s.Connections)),
		text.Counted(int64(s.MaxConnections), "connection"), text.Counted(int64(relays), "relay"))
}

// UsesCarrier reports whether one of the transports of relays is a carrier.
func UsesCarrier(transports iter.Seq[string]) bool {
	for transport := range transports {
		if transport != outbox.NoCarrier {
			return true
		}
	}
	return false
}

// CarrierProblem returns the problem of a carrier that does not answer. fault is the error of its query.
func CarrierProblem(fault string) Problem {
	remedy := text.Command(CarrierOperation).To("show the carrier")
	return newProblem(text.Bad, remedy, "The carrier does not answer: %s", fault)
}

// HealthProblem returns the problem of a server whose health cannot be read.
func HealthProblem() Problem {
	return newProblem(text.Bad, text.Command("doctor").To("check the installation"), "The health of the server cannot be read")
}

// Problems returns the problems that need an operator, the worst first. waiting is the number of messages that wait, and
// last are jobs that ended recently: those that failed are problems for a day.
func Problems(
	s doctor.ServerHealth, system operation.Status, senders []delivery.SenderState, waiting int64, last []jobs.JobState,
) (list []Problem) {
	add := func(tone text.Tone, remedy any, format string, args ...any) {
		list = append(list, newProblem(tone, remedy, format, args...))
	}
	if system.Halted() {
		add(text.Bad, text.Command("unhalt").To("end the halt"), "Everything is halted")
	}
	if len(s.Relays) == 0 && waiting > 0 {
		add(text.Bad, "", "No relay is running, and %s wait: start the daemon or a relay", text.Counted(waiting, "message"))
	}
	for _, one := range senders {
		switch one.Condition() {
		case delivery.Paused:
			add(words.ToneHold, text.Command("senders resume", one.Name).To("resume it"), "Sender %s is paused", one.Name)
		case delivery.Open:
			add(text.Bad, text.Command(ErrorsOperation).To("show the errors"),
				"Sender %s is blocked after failures and tries again by itself", one.Name)
		case delivery.HalfOpen, delivery.NoRelay, delivery.Ready:
		}
	}
	for _, j := range last {
		if is := JobStatus(j, false); is.Tone == text.Bad && j.FinishedAt != nil && time.Since(*j.FinishedAt) < failedFor {
			add(text.Bad, text.Command("jobs show", j.ID).To("show it"), "Job %d: %s", j.ID, strings.ToLower(is.Word))
		}
	}
	for _, lane := range system.PausedLanes {
		add(words.ToneHold, text.Command("lanes resume", lane).To("resume it"), "Lane %s is paused", lane)
	}
	if s.Standby {
		add(text.Wait, "", "The database is a standby: nothing can be changed here")
	}
	if float64(s.Connections) >= fullConnections*float64(s.MaxConnections) && s.MaxConnections > 0 {
		add(text.Wait, "", "The database has few connections left: %d of %d are in use", s.Connections, s.MaxConnections)
	}
	if age := operation.SecondsSpan(s.OldestTransaction); s.OldestTransaction != nil && age > longTransaction {
		add(text.Wait, "", "A transaction has been open for %s, which keeps the database from cleaning up: end its session",
			words.Span(age))
	}
	if lag := operation.SecondsSpan(s.ReplayLag); s.ReplayLag != nil && lag > longReplayLag {
		add(text.Wait, "", "A standby of the database is %s behind", words.Span(lag))
	}
	slices.SortStableFunc(list, func(a, b Problem) int { return cmp.Compare(a.rank(), b.rank()) })
	return list
}

func newProblem(tone text.Tone, remedy any, format string, args ...any) Problem {
	status := words.Status{Word: fmt.Sprintf(format, args...), Tone: tone}
	return Problem{Status: status, Remedy: text.Line{text.CellOf(remedy)}}
}

// rank returns the position of a problem in a list: the bad ones are first.
func (p Problem) rank() int { return map[bool]int{true: 1}[p.Status.Tone != text.Bad] }
