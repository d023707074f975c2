package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/dev/fake"
	"github.com/belfryhq/belfry/internal/text"
)

// The default address of the fakes, and the delay of an AlimTalk result.
const (
	fakeListen   = "127.0.0.1:8925"
	fakeReceipts = 3 * time.Second
)

func newFakeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fake",
		Short: "Play every provider on this machine, with faults to order, until a signal",
		Long: `Play every provider on this machine, so that belfry can be tried out, and be seen
to fail, without an account anywhere: webhook, SMS, FCM, APNs, Web Push, AlimTalk
and SMTP. They verify credentials and signatures, decrypt Web Push, and keep
account of every idempotency key they accepted. The senders for belfry's
configuration are printed at the start, or with --write go to a file, which stays good
from one start to the next; a table of what was accepted, twice, refused and lost at
the end, which SIGINT or SIGTERM brings about.

Faults are written in YAML, of which JSON is a part:

` + indented(fake.FaultHelp, "    ") + `

While it runs: GET /summary and /calls?provider=fcm show what came in, DELETE /calls
forgets it, PUT /faults with a list of faults replaces them, POST
/webpush/subscriptions?count=10 hands out subscriptions.

It has no authentication and shows what it is sent: keep it off public addresses.`,
		Example: `  belfry fake
  belfry fake --write fake.yaml   # then: belfry --config config.yaml --config fake.yaml run --deliver
  belfry fake --fault '{for: fcm, status: 503, share: 0.1}' --fault '{for: sms, do: reset, share: 0.01}' --honour-keys
  curl -X PUT --data '[{for: fcm, status: 429, retry_after: 5s, count: 100}]' http://127.0.0.1:8925/faults`,
		Args: noArgs,
	}
	flags := cmd.Flags()
	listen := flagOf(flags, "listen", "HOST:PORT", fmt.Sprintf("where to listen for HTTP, 1.1 and 2 without TLS; SMTP is at the next port (default %s)", fakeListen), checked(fake.CheckAddress))
	var ordered faultList
	flags.Var(&ordered, "fault", "a fault to order; may be given several times, and the first that applies decides")
	honour := flags.Bool("honour-keys", false, "answer a repeated idempotency key as the first time, and do nothing")
	seed := flagOf(flags, "seed", "N", "the same seed draws the same faults (default random, printed)", intBetween(0, math.MaxInt64))
	o := &fakeOptions{Config: fake.DefaultConfig()}
	flags.StringVar(&o.write, "write", "", "write the senders to `FILE`, which --config takes, instead of printing them")
	o.out = addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.commandOptions = a.options(cmd)
		o.Listen, o.Faults, o.HonourKeys, o.ReceiptDelay = listen.or(fakeListen), ordered.list, *honour, fakeReceipts
		o.Seed = uint64(seed.or(rand.Int64N(1_000_000))) //nolint:gosec // not negative, and not a secret
		return runFake(cmd.Context(), o)
	}
	return cmd
}

// fakeOptions are the options of `belfry fake`.
type fakeOptions struct {
	commandOptions
	fake.Config

	write string // a file
	out   *output
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

// faultList is a repeatable flag.
type faultList struct {
	list []fake.Fault
	text []string
}

func (f *faultList) Set(text string) error {
	fault, err := fake.ParseFault(text)
	if err != nil {
		return err
	}
	f.list, f.text = append(f.list, fault), append(f.text, text)
	return nil
}

func (f *faultList) String() string { return strings.Join(f.text, "; ") }
func (f *faultList) Type() string   { return "FAULT" }

// runFake serves the fake providers.
func runFake(ctx context.Context, o *fakeOptions) (err error) {
	server, err := fake.Start(ctx, o.Config)
	if err != nil {
		// A port in use concerns this command, not the database.
		return &exitError{codeFailure, err}
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	config, err := fakeSenders(server)
	if err != nil {
		return err
	}
	switch {
	case o.write != "":
		if err := writeSenders(o.write, config); err != nil {
			return err
		}
		o.remark("senders written to %s: give it to belfry by --config, after another one if there is", o.write)
	case o.out.json():
		o.remark("%s", strings.TrimSuffix(config, "\n"))
	default:
		o.printf("%s", config)
	}
	o.remark("the fakes are ready; seed %d; Ctrl-C ends them", o.Seed)
	watchFakes(ctx, o.streams, server)
	summary := server.Summary()
	if o.out.json() {
		return o.printJSON(summary)
	}
	printFakes(o.streams, summary)
	return nil
}

// fakesEvery is the interval of the live line.
const fakesEvery = time.Second

// watchFakes shows the calls on a terminal, until ctx ends.
func watchFakes(ctx context.Context, x *streams, server *fake.Server) {
	live := newProgress(x)
	defer live.end()
	if live.width == nil {
		<-ctx.Done()
		return
	}
	tick := time.NewTicker(fakesEvery)
	defer tick.Stop()
	for before := int64(0); ; {
		select {
		case <-tick.C:
			sum := server.Summary().Total()
			live.line(fakeLine(sum, sum.Calls-before))
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
		what string
	}{
		{sum.Duplicates, "duplicate"}, {sum.Repeats, "repeated"}, {sum.Refusals(), "refused"}, {sum.Dropped, "dropped"},
		{sum.Unanswered, "unanswered"}, {sum.Early, "early"},
	} {
		if part.n > 0 {
			line += ", " + text.Grouped(part.n) + " " + part.what
		}
	}
	return line
}

// printFakes writes a table of the calls that each provider received.
func printFakes(x *streams, s fake.Summary) {
	total := s.Total()
	if total.Calls == 0 {
		x.printf("\nno calls\n")
		return
	}
	x.printf("\n")
	t := text.NewTable("PROVIDER", ">CALLS", ">ACCEPTED", ">KEYS", ">DUPLICATES", ">REPEATS", ">REFUSED", ">DROPPED", ">UNANSWERED", ">EARLY", "REFUSED BY CODE")
	row := func(name string, p fake.Tally) {
		var codes []string
		for _, code := range slices.Sorted(maps.Keys(p.Refused)) {
			codes = append(codes, code+" "+text.Grouped(p.Refused[code]))
		}
		t.Add(name, text.Grouped(p.Calls), text.Grouped(p.Accepted), text.Grouped(p.DistinctKeys), text.Grouped(p.Duplicates), text.Grouped(p.Repeats),
			text.Grouped(p.Refusals()), text.Grouped(p.Dropped), text.Grouped(p.Unanswered), text.Grouped(p.Early), strings.Join(codes, ", "))
	}
	for _, p := range s.Providers {
		if p.Calls > 0 {
			row(string(p.Provider), p)
		}
	}
	row("all", total)
	x.page().Table(t)
}
