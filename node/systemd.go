package node

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/belfryhq/belfry/internal/lifecycle"
)

// ServiceManager notifies the manager that started the process, such as systemd, of its state; see
// sd_notify(3).
type ServiceManager struct {
	// Variable returns an environment variable. Without NOTIFY_SOCKET there is no manager.
	Variable func(name string) string
	// Live returns the reasons to restart the process. It must not block. While there is one, the manager gets
	// no keep-alive: its watchdog then ends the process. Nil returns none.
	Live func(now time.Time) []string
	Log  zerolog.Logger
}

// Serve runs loops until ctx is cancelled. A loop that ends with an error ends all of them. The manager gets
// READY=1 at the start, WATCHDOG=1 twice in each interval of its watchdog, and STOPPING=1 when ctx is cancelled,
// which is logged with the message stopping.
func (m ServiceManager) Serve(ctx context.Context, stopping string, loops ...func(context.Context) error) error {
	m.notify("READY=1")
	over := make(chan struct{})
	var notified sync.WaitGroup
	notified.Go(func() {
		select {
		case <-ctx.Done():
			m.notify("STOPPING=1")
			m.Log.Info().Msg(stopping)
		case <-over:
		}
	})
	if every := m.watchdog(); every > 0 {
		notified.Go(func() { m.keepAlive(every/2, over) })
	}
	err := lifecycle.Together(ctx, loops...)
	close(over)
	notified.Wait()
	return err
}

// watchdog returns the interval of the manager's watchdog, or 0 if none watches this process.
func (m ServiceManager) watchdog() time.Duration {
	if pid := m.Variable("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	micros, err := strconv.ParseInt(m.Variable("WATCHDOG_USEC"), 10, 64)
	if err != nil || micros <= 0 || m.Variable("NOTIFY_SOCKET") == "" {
		return 0
	}
	return time.Duration(micros) * time.Microsecond
}

// keepAlive notifies the watchdog until over is closed.
func (m ServiceManager) keepAlive(every time.Duration, over <-chan struct{}) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			if m.Live != nil {
				if problems := m.Live(now); len(problems) > 0 {
					m.Log.Error().Str("reason", strings.Join(problems, "; ")).Msg("no keep-alive for the service manager")
					continue
				}
			}
			m.notify("WATCHDOG=1")
		case <-over:
			return
		}
	}
}

// notify sends a state, such as READY=1.
func (m ServiceManager) notify(state string) {
	socket := m.Variable("NOTIFY_SOCKET")
	if socket == "" {
		return
	}
	if name, abstract := strings.CutPrefix(socket, "@"); abstract {
		socket = "\x00" + name
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err == nil {
		err = conn.SetWriteDeadline(time.Now().Add(time.Second))
		if err == nil {
			_, err = conn.Write([]byte(state))
		}
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		m.Log.Warn().Err(err).Msg("cannot notify the service manager")
	}
}
