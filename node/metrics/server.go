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
)

// The Server's patience with who asks it.
const (
	readTimeout  = 10 * time.Second
	writeTimeout = 15 * time.Second
	// stopTimeout is how long answers under way may still take when the process ends.
	stopTimeout = 2 * time.Second
	maxHeader   = 16 << 10
)

// Server answers on metrics.listen.
//
//	/metrics        in the formats of Prometheus
//	/livez          200 while the process lives, else 503 and why
//	/readyz         200 while it does its work, else 503 and why
//	/debug/pprof/   where metrics.pprof is true; but for cmdline, which could show a password
type Server struct {
	http   http.Server
	at     string
	served sync.WaitGroup
}

// Listen begins to answer. ctx bounds starting alone; Close ends it. The error wraps that of
// the system, as syscall.EADDRINUSE.
func Listen(ctx context.Context, c Config, m *Metrics, h *Health) (*Server, error) {
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

// Addr is HOST:PORT where it listens.
func (s *Server) Addr() string { return s.at }

// Close ends answers that are under way after a moment, and returns when all have ended.
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

func handler(c Config, m *Metrics, h *Health) http.Handler {
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

// answer says ok, or each problem.
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
