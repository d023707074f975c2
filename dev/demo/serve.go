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
	// visitor is the user of the demo's console, with the role admin.
	visitor = "visitor"
	// noticeEvery is the interval of notices while the console is open.
	noticeEvery = 15 * time.Second
	// abortAfter is the time from a notice with a wrong text to its abort, and correctAfter from the
	// abort to the correction.
	abortAfter   = 4 * time.Second
	correctAfter = 6 * time.Second
)

// serve runs a daemon with its console on the demo's database and enqueues notices until ctx ends,
// which is not an error.
func (s *stage) serve(ctx context.Context) error {
	s.screen.act("The console")
	if _, err := s.pool.Exec(ctx, queries.serveSchedules); err != nil {
		return fmt.Errorf("create schedules: %w", err)
	}
	s.extra = append(s.extra, "BELFRY_LOG_LEVEL=error") // the demo buffers the log, and there are many dead letters
	if err := s.makeHistory(ctx); err != nil {
		return unlessOver(ctx, err)
	}
	password := rand.Text()
	if _, err := s.run(ctx, password, "users", "add", visitor, "--role", "admin", "--password-file", "-"); err != nil {
		return err
	}
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
	s.screen.bullet("http://%s/sign-in#link=%s", s.Listen, link)
	s.screen.bullet("signs in once, within ten minutes; later: %s, password %s", visitor, password)
	s.screen.bullet("it is open until Ctrl-C; a notice starts every %s, some are stopped and corrected", noticeEvery)
	return unlessOver(ctx, s.happen(ctx, daemon))
}

// free returns an error if the console's address is in use. It is called before any change.
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

// unlessOver returns err, or nil if ctx has ended.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// happen enqueues notices until ctx or the daemon ends.
func (s *stage) happen(ctx context.Context, daemon *runner) error {
	again := time.NewTicker(noticeEvery)
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

// happenOnce enqueues notice n. A notice with a wrong text is aborted during its walk and resumed with
// the right text.
func (s *stage) happenOnce(ctx context.Context, n int) error {
	var id int64
	var wrong bool
	if err := scan(ctx, s.pool, queries.serveEnqueue, pgx.StrictNamedArgs{"n": n, "channels": s.Channels}, &id, &wrong); err != nil || !wrong {
		return err
	}
	return s.correct(ctx, id, abortAfter, correctAfter)
}

// correct aborts a notice with a wrong text after a time, and resumes it with the right text after another.
func (s *stage) correct(ctx context.Context, id int64, abort, resume time.Duration) error {
	for _, step := range []struct {
		after     time.Duration
		statement string
	}{{abort, queries.serveAbort}, {resume, queries.serveCorrect}} {
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

// run runs belfry until it ends, and returns its standard output.
func (s *stage) run(ctx context.Context, input string, args ...string) (string, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Executable, append([]string{"--config", "/dev/null"}, args...)...)
	cmd.Env, cmd.Stdin, cmd.WaitDelay = s.environment("demo"), strings.NewReader(input), drainDelay
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", errors.Join(fmt.Errorf("belfry %s: %w", strings.Join(args[:2], " "), err), errors.New(strings.TrimSpace(stderr.String())))
	}
	return strings.TrimSpace(string(out)), nil
}
