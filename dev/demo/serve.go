package demo

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// visitor is who signs in to the console of a demo, as admin.
	visitor = "visitor"
	// happensEvery is how often something happens while the console is open.
	happensEvery = 15 * time.Second
	// noticedAfter is how long it takes in the demo until somebody sees a wrong text, and
	// correctedAfter until it is corrected.
	noticedAfter   = 4 * time.Second
	correctedAfter = 6 * time.Second
)

// serve is what comes after the proof, if it is asked for: a daemon with its console on the demo's
// database, in which something happens all the time, until ctx ends. That is a good end.
func (s *stage) serve(ctx context.Context) error {
	s.screen.act("The console")
	if _, err := s.pool.Exec(ctx, queries.serveSchedules); err != nil {
		return fmt.Errorf("make schedules: %w", err)
	}
	password := rand.Text()
	if _, err := s.run(ctx, password, "users", "add", visitor, "--role", "admin", "--password-file", "-"); err != nil {
		return err
	}
	s.extra = append(s.extra, "BELFRY_LOG_LEVEL=error") // what it says is kept, and dead letters are many
	daemon, err := s.start(ctx, "daemon", "--listen", s.Listen)
	if err != nil {
		return err
	}
	wait, cancel := s.deadline(ctx)
	defer cancel()
	err = s.await(wait, daemon, "the console answers", func(ctx context.Context) (bool, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Listen)
		if err == nil {
			err = conn.Close()
		}
		return err == nil, ctx.Err()
	})
	if err != nil {
		return unlessOver(ctx, err)
	}
	link, err := s.run(ctx, "", "users", "link", visitor)
	if err != nil {
		return unlessOver(ctx, err)
	}
	s.screen.say("http://%s/sign-in#link=%s", s.Listen, link)
	s.screen.say("signs in once, within ten minutes; later: %s, password %s", visitor, password)
	s.screen.say("it is open until Ctrl-C; a notice begins every %s, some are stopped and corrected", happensEvery)
	return unlessOver(ctx, s.happen(ctx, daemon))
}

// free reports whether there is room for the console, while nothing has been done yet.
func (s *stage) free(ctx context.Context) error {
	if s.Listen == "" {
		return nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.Listen)
	if err != nil {
		return fmt.Errorf("the console: %w; choose another address with --serve=HOST:PORT", err)
	}
	return l.Close()
}

// unlessOver is err, unless the console was open until somebody had seen enough.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// happen has something happen until ctx ends, or the daemon does.
func (s *stage) happen(ctx context.Context, daemon *runner) error {
	again := time.NewTicker(happensEvery)
	defer again.Stop()
	for n := 0; ; n++ {
		if err := s.happenOnce(ctx, n); err != nil {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-daemon.ended:
			return daemon.complaint("ended")
		}
	}
}

// happenOnce enqueues the n-th notice. One that is wrong is stopped by somebody in mid-walk, and
// goes on with the right text.
func (s *stage) happenOnce(ctx context.Context, n int) error {
	var id int64
	var wrong bool
	if err := scan(ctx, s.pool, queries.serveEnqueue, pgx.StrictNamedArgs{"n": n, "channels": s.Channels}, &id, &wrong); err != nil || !wrong {
		return err
	}
	for _, step := range []struct {
		after     time.Duration
		statement string
	}{{noticedAfter, queries.serveAbort}, {correctedAfter, queries.serveCorrect}} {
		timer := time.NewTimer(step.after)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		if _, err := s.pool.Exec(ctx, step.statement, pgx.StrictNamedArgs{"id": id}); err != nil {
			return fmt.Errorf("correct job %d: %w", id, err)
		}
	}
	return nil
}

// run runs belfry until it ends, and returns what it printed.
func (s *stage) run(ctx context.Context, input string, args ...string) (string, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Executable, append([]string{"--config", "/dev/null"}, args...)...)
	cmd.Env, cmd.Stdin, cmd.WaitDelay = s.environment("demo"), strings.NewReader(input), drainDelay
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", errors.Join(fmt.Errorf("belfry %s: %w", strings.Join(args[:2], " "), err), errors.New(strings.TrimSpace(said.String())))
	}
	return strings.TrimSpace(string(out)), nil
}
