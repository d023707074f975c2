package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/belfryhq/belfry/internal/child"
)

// Transports are the allowed values of Config.Transport.
func Transports() []string { return []string{postgres, "redislist", "redisstream", jetstream} }

const (
	postgres  = "postgres"
	jetstream = "jetstream"
)

// carrier is the private server of the demo's ids.
type carrier struct {
	process *child.Process
	dir     string
}

// startCarrier starts the carrier's server, which ends with the stage, and configures it for later
// relays.
func (s *stage) startCarrier(ctx context.Context) error {
	if s.Transport == postgres {
		return nil
	}
	programs := []string{"redis-server", "valkey-server"}
	if s.Transport == jetstream {
		programs = []string{"nats-server"}
	}
	program, err := s.carrierProgram(programs)
	if err != nil {
		return err
	}
	c := &carrier{}
	if c.dir, err = os.MkdirTemp("", "belfry-demo-"); err != nil {
		return err
	}
	s.carrier = c
	socket, stop := filepath.Join(c.dir, "redis.sock"), syscall.SIGTERM
	args := []string{"--port", "0", "--unixsocket", socket, "--unixsocketperm", "700", "--save", "", "--dir", c.dir}
	if s.Transport == jetstream {
		args = []string{"-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", c.dir, "-js", "-sd", filepath.Join(c.dir, "data")}
	}
	if c.process, err = child.Start(exec.CommandContext(context.WithoutCancel(ctx), program, args...), stop); err != nil {
		return err
	}
	ready := func(ctx context.Context) error {
		if s.Transport == jetstream {
			return s.natsListens(c.dir)
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err != nil {
			return err
		}
		s.extra = append(s.extra, "BELFRY_DELIVERY_REDIS_URL=unix://"+socket)
		return conn.Close()
	}
	if err := child.Await(ctx, c.process, ready); err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	s.extra = append(s.extra, "BELFRY_DELIVERY_TRANSPORT="+s.Transport)
	return nil
}

// carrierProgram is the path of the server: as it was given, or the first that is on PATH.
func (s *stage) carrierProgram(names []string) (string, error) {
	if s.CarrierServer != "" {
		return s.CarrierServer, nil
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("transport: %s needs %s, which is not on PATH; install it, or name it", s.Transport, strings.Join(names, " or "))
}

// natsListens reads where a server listens that has chosen its port.
func (s *stage) natsListens(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.ports"))
	if err != nil || len(files) == 0 {
		return errors.Join(err, errors.New("the server does not listen yet"))
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	var ports struct {
		NATS []string `json:"nats"`
	}
	if err := json.Unmarshal(text, &ports); err != nil {
		return err
	}
	if len(ports.NATS) == 0 {
		return errors.New("the server does not listen yet")
	}
	s.extra = append(s.extra, "BELFRY_DELIVERY_NATS_URLS="+ports.NATS[0], "BELFRY_DELIVERY_NATS_REPLICAS=1")
	return nil
}

// close ends the server and removes its files.
func (c *carrier) close() error {
	if c == nil {
		return nil
	}
	var err error
	if c.process != nil {
		err = c.process.Stop(child.Step{Signal: syscall.SIGTERM, Wait: 10 * time.Second},
			child.Step{Signal: syscall.SIGKILL, Wait: 10 * time.Second})
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}
