package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/outbox/relay"
)

// relayProcess is a relay in a process of its own, with a sender that does nothing. It writes
// a line when it is ready, delivers when it reads one, and writes after that what it has sent
// since its line before.
type relayProcess struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	stderr strings.Builder
}

// startRelay starts one, which is killed when ctx ends.
func (e *env) startRelay(ctx context.Context, spec childSpec) *relayProcess {
	self, err := os.Executable()
	e.check(err)
	text, err := json.Marshal(spec)
	e.check(err)
	p := &relayProcess{cmd: exec.CommandContext(ctx, self)}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	p.cmd.Stderr = &p.stderr
	p.in, err = p.cmd.StdinPipe()
	e.check(err)
	out, err := p.cmd.StdoutPipe()
	e.check(err)
	p.out = bufio.NewScanner(out)
	e.check(p.cmd.Start())
	return p
}

// ready waits until it is.
func (p *relayProcess) ready() error {
	if p.out.Scan() {
		return nil
	}
	return p.ended()
}

// ended says why it did not go on.
func (p *relayProcess) ended() error {
	return errors.Join(fmt.Errorf("relay process: %s", strings.TrimSpace(p.stderr.String())), p.out.Err())
}

// run has it deliver, hands on how many it has sent more, and ends it when enough is closed.
func (p *relayProcess) run(enough <-chan struct{}, sent func(more int64)) error {
	if _, err := fmt.Fprintln(p.in); err != nil {
		return err
	}
	var ending sync.WaitGroup
	defer ending.Wait()
	ended := make(chan struct{})
	defer close(ended)
	ending.Go(func() {
		select {
		case <-enough:
		case <-ended:
		}
		_ = p.in.Close()
	})
	for p.out.Scan() {
		var more int64
		if _, err := fmt.Sscan(p.out.Text(), &more); err != nil {
			return err
		}
		sent(more)
	}
	select {
	case <-enough:
		return p.cmd.Wait()
	default:
		return p.ended()
	}
}

// deliverForParent is the relay process itself. It ends when its input does.
func (e *env) deliverForParent(ctx context.Context, spec childSpec, in io.Reader, out io.Writer) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcRelay) // as cmd/belfry does
	}
	t, err := spec.Servers.transport(spec.Transport)
	e.check(err)
	var options []relay.Option
	if t.open != nil {
		b, err := t.open(spec.Servers)
		e.check(err)
		defer func() { e.check(b.Close()) }()
		options = append(options, relay.WithBroker(b, relay.RequeueAfter))
	}
	pool := e.connect(ctx, spec.DSN, application, nil)
	defer pool.Close()
	r := e.newRelay(pool, provider{}, calls, options...)
	fmt.Fprintln(out, "ready")
	lines := bufio.NewScanner(in)
	e.demand(lines.Scan(), "nobody says go")
	running, stop := e.start(ctx, r.Run)
	defer stop() // softly: another process may lead the pushes at once
	over := make(chan struct{})
	go func() {
		defer close(over)
		lines.Scan() // until the parent has enough, or has ended
	}()
	for told := int64(0); lifecycle.Pause(running, 2*time.Millisecond) == nil; {
		if sent := r.Stats().Sent; sent > told {
			fmt.Fprintln(out, sent-told)
			told = sent
		}
		select {
		case <-over:
			return
		default:
		}
	}
}
