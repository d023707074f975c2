package commands

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/dev/fake"
	"github.com/belfryhq/belfry/internal/text"
)

// FakeListen is the default address of the fake providers.
const FakeListen = "127.0.0.1:8925"

// FakeReceipts is the delay of an AlimTalk result.
const FakeReceipts = 3 * time.Second

// FakeHelp returns the description of `belfry fake`.
func FakeHelp() string {
	return `Fake every provider on this machine, to try belfry and its failures without an account:
webhook, SMS, FCM, APNs, Web Push, AlimTalk and SMTP. The fakes verify credentials and
signatures, decrypt Web Push, and record every idempotency key that they accepted. At the
start the command prints the senders for belfry's configuration, or writes them to the file
that --write names; the file stays valid for later starts. SIGINT or SIGTERM ends the command,
which then prints how many messages each provider accepted, accepted twice, refused and lost.

Faults are written in YAML or JSON:

` + indented(fake.FaultHelp, "    ") + `

HTTP requests to the running fakes: GET /summary and GET /calls?provider=fcm return the calls,
DELETE /calls discards them, PUT /faults replaces the faults by a list, and POST
/webpush/subscriptions?count=10 creates subscriptions.

The fakes have no authentication and show all messages: do not use a public address.`
}

// indented puts a margin before every line that is not empty.
func indented(text, margin string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if line != "" {
			lines[i] = margin + line
		}
	}
	return strings.Join(lines, "\n")
}

// Faults is a repeatable flag.
type Faults struct {
	List []fake.Fault
	text []string
}

// Set adds a fault.
func (f *Faults) Set(text string) error {
	fault, err := fake.ParseFault(text)
	if err != nil {
		return err
	}
	f.List, f.text = append(f.List, fault), append(f.text, text)
	return nil
}

// String returns the texts of all faults.
func (f *Faults) String() string { return strings.Join(f.text, "; ") }

// Type returns the name of a value, for the help.
func (f *Faults) Type() string { return "FAULT" }

// ServeFakes prints the senders of a server, or writes them to a file if write names one, and shows
// the calls until ctx ends. Then it prints a summary.
func ServeFakes(ctx context.Context, out Output, server *fake.Server, write string, json bool) error {
	config, err := Senders(server)
	if err != nil {
		return err
	}
	switch {
	case write != "":
		if err := writeSenders(write, config); err != nil {
			return err
		}
		out.Remark("senders written to %s: give it to belfry by --config, after your own files", write)
	case json:
		out.Remark("%s", strings.TrimSuffix(config, "\n"))
	default:
		out.Printf("%s", config)
	}
	out.Remark("the fakes are ready; seed %d; Ctrl-C ends them", server.Summary().Seed)
	watchFakes(ctx, out.Ticker(), server)
	summary := server.Summary()
	if json {
		return out.PrintJSON(summary)
	}
	printFakes(out, summary)
	return nil
}

// fakesEvery is the interval of the live line.
const fakesEvery = time.Second

// watchFakes shows the calls on a terminal, until ctx ends.
func watchFakes(ctx context.Context, live *text.Ticker, server *fake.Server) {
	defer live.Clear()
	if !live.OnTerminal() {
		<-ctx.Done()
		return
	}
	tick := time.NewTicker(fakesEvery)
	defer tick.Stop()
	for before := int64(0); ; {
		select {
		case <-tick.C:
			sum := server.Summary().Total()
			live.Line(fakeLine(sum, sum.Calls-before))
			before = sum.Calls
		case <-ctx.Done():
			return
		}
	}
}

// fakeLine renders all calls as one line; lately is the number of calls in the last second.
func fakeLine(sum fake.Tally, lately int64) string {
	line := fmt.Sprintf("%s, %s/s: %s accepted", text.Counted(sum.Calls, "call"), text.Grouped(max(lately, 0)), text.Grouped(sum.Accepted))
	for _, part := range []struct {
		n    int64
		noun string
	}{
		{sum.Duplicates, "duplicate"}, {sum.Repeats, "repeated"}, {sum.Refusals(), "refused"}, {sum.Dropped, "dropped"},
		{sum.Unanswered, "unanswered"}, {sum.Early, "early"},
	} {
		if part.n > 0 {
			line += ", " + text.Grouped(part.n) + " " + part.noun
		}
	}
	return line
}

// printFakes writes a table of the calls that each provider received.
func printFakes(out Output, s fake.Summary) {
	total := s.Total()
	if total.Calls == 0 {
		out.Printf("\nno calls\n")
		return
	}
	out.Printf("\n")
	t := text.NewTable("PROVIDER", ">CALLS", ">ACCEPTED", ">KEYS", ">DUPLICATES", ">REPEATS", ">REFUSED", ">DROPPED", ">UNANSWERED",
		">EARLY", "REFUSED BY CODE")
	row := func(name string, p fake.Tally) {
		var codes []string
		for _, code := range slices.Sorted(maps.Keys(p.Refused)) {
			codes = append(codes, code+" "+text.Grouped(p.Refused[code]))
		}
		t.Add(name, text.Grouped(p.Calls), text.Grouped(p.Accepted), text.Grouped(p.DistinctKeys), text.Grouped(p.Duplicates),
			text.Grouped(p.Repeats),
			text.Grouped(p.Refusals()), text.Grouped(p.Dropped), text.Grouped(p.Unanswered), text.Grouped(p.Early), strings.Join(codes, ", "))
	}
	for _, p := range s.Providers {
		if p.Calls > 0 {
			row(string(p.Provider), p)
		}
	}
	row("all", total)
	out.Page().Table(t)
}
