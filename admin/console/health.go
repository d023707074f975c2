package console

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/doctor"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"

	"github.com/belfryhq/belfry/admin/delivery"
)

// health is the health of the installation. Without problems it is one line.
type health struct {
	Summary  string
	Problems []problem
	Checks   []tab // the full check-up, if the caller may run it
}

// problem is something to do for an operator.
type problem struct {
	Status  words.Status
	Actions []tab
	remedy  text.Line
}

// The limits of a healthy database.
const (
	fullConnections = 0.9
	longTransaction = time.Hour
	longReplayLag   = time.Minute
)

// health returns the health of the server, the relays, and their carrier. waiting is the number of messages
// that wait.
func (h *handler) health(senders delivery.Senders, waiting int64) (health, error) {
	a, err := h.query("health", nil)
	server, is := a.out.(doctor.ServerHealth)
	if err != nil || !is {
		return health{}, err
	}
	all := health{Summary: healthSummary(server), Problems: problemsOf(server, h.state, senders.Senders, waiting),
		Checks: h.action("doctor", "Full check", nil)}
	if carrier, there := h.named("transport status"); there && usesCarrier(server.Relays) {
		ctx, cancel := context.WithTimeout(h.req.Context(), partTimeout)
		defer cancel()
		if _, err := h.do(ctx, carrier, carrier.NewInput()); err != nil {
			all.Problems = append(all.Problems, problem{Status: words.Status{Word: "The carrier does not answer: " + h.plain(text.OfError(err)), Tone: text.Bad},
				remedy: text.Line{text.Command("transport status").To("show the carrier")}})
		}
	}
	for i, p := range all.Problems {
		all.Problems[i].Actions = h.remedies(p.remedy)
	}
	return all, nil
}

// usesCarrier reports whether a relay has another transport than the database.
func usesCarrier(relays map[string]int) bool {
	for transport := range relays {
		if transport != "postgres" {
			return true
		}
	}
	return false
}

// healthSummary names the server, its connections, and the relays.
func healthSummary(s doctor.ServerHealth) string {
	relays := 0
	for _, n := range s.Relays {
		relays += n
	}
	version, _, _ := strings.Cut(s.Server, " ")
	return fmt.Sprintf("PostgreSQL %s · %s of %s · %s", version, text.Grouped(int64(s.Connections)),
		text.Counted(int64(s.MaxConnections), "connection"), text.Counted(int64(relays), "relay"))
}

// problemsOf returns the problems that need an operator, the worst first.
func problemsOf(s doctor.ServerHealth, system operation.Status, senders []delivery.SenderState, waiting int64) (list []problem) {
	add := func(tone text.Tone, remedy any, format string, args ...any) {
		list = append(list, problem{Status: words.Status{Word: fmt.Sprintf(format, args...), Tone: tone}, remedy: text.Line{text.CellOf(remedy)}})
	}
	if system.Halted() {
		add(text.Bad, text.Command("unhalt").To("end the halt"), "Everything is halted")
	}
	if len(s.Relays) == 0 && waiting > 0 {
		add(text.Bad, "", "No relay is running, and %s: start the daemon or a relay", text.Counted(waiting, "message")+" wait")
	}
	for _, one := range senders {
		switch {
		case one.PausedAt != nil:
			add(words.ToneHold, text.Command("senders resume", one.Name).To("resume it"), "Sender %s is paused", one.Name)
		case slices.Contains(one.Breakers, "open"):
			add(text.Bad, text.Command("dead-letters errors").To("show the errors"),
				"Sender %s is blocked after failures and tries again by itself", one.Name)
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
		add(text.Wait, "", "A transaction has been open for %s, which keeps the database from cleaning up: end its session", words.Span(age))
	}
	if lag := operation.SecondsSpan(s.ReplayLag); s.ReplayLag != nil && lag > longReplayLag {
		add(text.Wait, "", "A standby of the database is %s behind", words.Span(lag))
	}
	slices.SortStableFunc(list, func(a, b problem) int {
		return map[bool]int{true: 1}[a.Status.Tone != text.Bad] - map[bool]int{true: 1}[b.Status.Tone != text.Bad]
	})
	return list
}
