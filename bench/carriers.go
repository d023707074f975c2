package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sync/errgroup"

	"github.com/belfryhq/belfry/internal/child"
	"github.com/belfryhq/belfry/outbox/relay"
)

// transport is what relays receive their messages from.
type transport struct {
	name string
	// open opens the broker on the Redis server at addr; nil: PostgreSQL itself.
	open func(addr string) (relay.Broker, error)
}

// transports are those that carriers compares, PostgreSQL first.
func transports() []transport {
	return []transport{{name: "postgres"}}
}

// processes are how many relay processes deliver at the same time.
func processes() []int { return []int{1, 2, 4} }

func processesOf(n int) string {
	if n == 1 {
		return "1 process"
	}
	return strconv.Itoa(n) + " processes"
}

// asynqShare is the part of a round's messages that asynq gets as tasks: it is slower, and its
// speed is that of each task.
const asynqShare = 10

// carriers compares the transports, each with some relay processes, with asynq on the same
// Redis server.
func carriers(ctx context.Context, e *env, r *result) {
	addr := e.redis(ctx)
	if addr == "" {
		r.note("Skipped: no redis-server or valkey-server is installed.")
		return
	}
	var turns []turn
	for _, t := range transports() {
		for _, n := range processes() {
			turns = append(turns, turn{fmt.Sprintf("%s %d", t.name, n), func() float64 { return e.deliverApart(ctx, t, n, addr) }})
		}
	}
	workers := []int{10, 100}
	for _, n := range workers {
		turns = append(turns, turn{fmt.Sprintf("asynq %d", n), func() float64 { return e.asynqRound(ctx, addr, n) }})
	}
	speeds := e.inTurns("/s", turns...)
	at := func(t, p int) []float64 { return speeds[t*len(processes())+p] }
	rival := speeds[len(speeds)-1]
	if ten := speeds[len(speeds)-2]; median(ten) > median(rival) {
		rival = ten
	}
	for i, t := range transports() {
		for p, n := range processes() {
			r.figure(fmt.Sprintf("%s_%d", t.name, n), t.name+", "+processesOf(n), median(at(i, p)), messageSpeed)
		}
		if t.open == nil {
			continue
		}
		r.figure(t.name+"_to_asynq", t.name+", 1 process, to asynq", ratio(at(i, 0), rival), unitRatio, atLeast(4))
		r.figure(t.name+"_to_postgres", t.name+" to postgres, 1 process", ratio(at(i, 0), at(0, 0)), unitRatio, atLeast(0.7))
		for p, n := range processes()[1:] {
			r.figure(fmt.Sprintf("%s_to_postgres_%d", t.name, n), t.name+" to postgres, "+processesOf(n), ratio(at(i, p+1), at(0, p+1)), unitRatio, atLeast(1))
		}
	}
	for i, n := range workers {
		r.figure(fmt.Sprintf("asynq_%d", n), fmt.Sprintf("asynq, %d workers", n), median(speeds[len(speeds)-len(workers)+i]), "tasks/s")
	}
	r.note("belfry: the messages of one push job, in PostgreSQL with fsync on, composed from their channels, no-op sender; timed from the go to relay processes that wait for it until they have sent all.")
	r.note("asynq keeps its state in Redis only, and records no attempt before it is made: no-op tasks, a %dth as many, enqueued beforehand, timed from Start to the last one handled. Redis writes an append-only file, fsync every second.", asynqShare)
}

// redis starts a server that keeps what it has as one of its users would, and ends with the
// run; "": none is installed.
func (e *env) redis(ctx context.Context) (addr string) {
	defer e.within("private Redis")
	var program string
	for _, name := range []string{"redis-server", "valkey-server"} {
		if found, err := exec.LookPath(name); err == nil && program == "" {
			program = found
		}
	}
	if program == "" {
		return ""
	}
	// The port may be somebody else's a moment later; then the server ends and says so.
	var ports net.ListenConfig
	free, err := ports.Listen(ctx, "tcp", "127.0.0.1:0")
	e.check(err)
	addr = free.Addr().String()
	e.check(free.Close())
	_, port, err := net.SplitHostPort(addr)
	e.check(err)
	dir := e.tempDir("belfry-bench-redis-")
	said, err := os.Create(filepath.Join(dir, "log"))
	e.check(err)
	defer func() { _ = said.Close() }()
	cmd := exec.Command(program, "--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--appendonly", "yes") //nolint:noctx // child ends it
	cmd.Stdout, cmd.Stderr = said, said
	server, err := child.Start(cmd, syscall.SIGKILL)
	e.check(err)
	e.onClose(func(context.Context) error {
		return server.Stop(child.Step{Signal: syscall.SIGKILL, Wait: closeTimeout})
	})
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err == nil {
			e.check(conn.Close())
			e.check(server.Err())
			return addr
		}
		e.check(server.Err())
		e.check(pause(ctx, 5*time.Millisecond))
	}
}

// deliverApart writes the messages of a push job to everyone and has relay processes deliver
// them. It returns their speed.
func (e *env) deliverApart(ctx context.Context, t transport, n int, redis string) float64 {
	defer e.within(t.name + ", " + processesOf(n))
	if t.open != nil {
		b, err := t.open(redis)
		e.check(err)
		defer func() { e.check(b.Close()) }()
		e.check(b.Empty(ctx))
	}
	messages := e.writeMessages(ctx, 1, func() {})
	ctx, cancel := context.WithCancel(ctx)
	var children []*relayProcess
	defer func() {
		cancel()
		for _, c := range children {
			_ = c.cmd.Wait() // what matters of its end was looked at before
		}
	}()
	for range n {
		children = append(children, e.startRelay(ctx, childSpec{DSN: e.dsn, Relation: "belfry.channels", Transport: t.name, Redis: redis}))
	}
	for _, c := range children {
		e.check(c.ready())
	}
	var sent, last atomic.Int64
	began := time.Now()
	running, counted := errgroup.WithContext(ctx)
	for _, c := range children {
		running.Go(func() error {
			return c.run(counted, func(more int64) {
				if sent.Add(more) >= messages {
					last.CompareAndSwap(0, int64(time.Since(began)))
					cancel() // all processes are done
				}
			})
		})
	}
	err := running.Wait()
	took := time.Duration(last.Load())
	if took == 0 {
		e.check(err)
	}
	var inBase, all int64
	e.look(context.WithoutCancel(ctx), e.pool, queries.messagesSent, nil, &inBase, &all)
	e.demand(inBase == all && all == messages, "the relays sent %d of %d messages", inBase, all)
	return perSecond(messages, took)
}

// asynqRound has asynq work no-op tasks on the Redis server and returns its speed.
func (e *env) asynqRound(ctx context.Context, addr string, workers int) float64 {
	defer e.within("asynq")
	to := asynq.RedisClientOpt{Addr: addr}
	client := asynq.NewClient(to)
	tasks := max(e.messages/asynqShare, 1)
	const clients = 16
	enqueuing, ctx2 := errgroup.WithContext(ctx)
	for c := range int64(clients) {
		enqueuing.Go(func() error {
			for i := c; i < tasks; i += clients {
				if _, err := client.EnqueueContext(ctx2, asynq.NewTask("noop", strconv.AppendInt(nil, i, 10))); err != nil {
					return err
				}
			}
			return nil
		})
	}
	e.check(enqueuing.Wait())
	e.check(client.Close())
	e.checkpoint(ctx)
	var handled atomic.Int64
	done := make(chan struct{})
	server := asynq.NewServer(to, asynq.Config{Concurrency: workers, LogLevel: asynq.FatalLevel})
	began := time.Now()
	e.check(server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		if handled.Add(1) == tasks {
			close(done)
		}
		return nil
	})))
	defer server.Shutdown()
	select {
	case <-done:
	case <-ctx.Done():
		e.check(context.Cause(ctx))
	}
	return perSecond(tasks, time.Since(began))
}

// transportOf finds a transport by its name.
func transportOf(name string) (transport, error) {
	var known []string
	for _, t := range transports() {
		if t.name == name {
			return t, nil
		}
		known = append(known, t.name)
	}
	return transport{}, fmt.Errorf("there is no transport %q here; allowed values: %s", name, strings.Join(known, ", "))
}
