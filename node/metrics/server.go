package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // http.Server takes no other logger, and this one is silenced
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync"
	"time"

	"github.com/belfryhq/belfry/node"
)

// The Server's limits.
const (
	readTimeout  = 10 * time.Second
	writeTimeout = 15 * time.Second
	// stopTimeout limits the responses in progress when the process stops.
	stopTimeout = 2 * time.Second
	maxHeader   = 16 << 10
)

// Server serves metrics.listen.
//
//	/metrics        in the Prometheus formats
//	/livez          200 while the process is live, else 503 with the reasons
//	/readyz         200 while the process is ready, else 503 with the reasons
//	/debug/pprof/   if metrics.pprof is true, except cmdline, which could contain a password
type Server struct {
	http   http.Server
	at     string
	served sync.WaitGroup
}

// Listen starts the server. ctx applies to the start only; Close stops the server. The error wraps
// the system's error, such as syscall.EADDRINUSE.
func Listen(ctx context.Context, c node.MetricsConfig, m *Metrics, h *Health) (*Server, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("metrics.listen: %w", err)
	}
	s := &Server{at: l.Addr().String()}
	s.http = http.Server{
		Handler: handler(c, m, h), ErrorLog: log.New(io.Discard, "", 0), MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: 2 * time.Minute,
	}
	s.served.Go(func() { _ = s.http.Serve(l) }) // ends with Close
	return s, nil
}

// Addr returns the HOST:PORT that the server listens on.
func (s *Server) Addr() string { return s.at }

// Close waits for responses in progress up to stopTimeout, then aborts them.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close()
	}
	s.served.Wait()
	return err
}

func handler(c node.MetricsConfig, m *Metrics, h *Health) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.Handler())
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, h.Live(time.Now())) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, h.Ready(time.Now())) })
	if c.PProf {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index) // each lifts writeTimeout by its ?seconds=
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	}
	return mux
}

// answer writes ok or the problems.
func answer(w http.ResponseWriter, problems []string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if len(problems) == 0 {
		_, _ = io.WriteString(w, "ok\n")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = io.WriteString(w, strings.Join(problems, "\n")+"\n")
}
