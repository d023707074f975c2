package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/lifecycle"
)

// names are those that the configuration gives to this process, held until release.
type names []*lifecycle.Hold

// holdNames takes the names of the runner and of the relay, those of them that are given: a
// name that belfry makes up is nobody else's.
func holdNames(ctx context.Context, s settings, db *database, runner, relay bool) (held names, err error) {
	for _, n := range []struct {
		kind, name string
		wanted     bool
	}{{lifecycle.RunnerName, s.Runner.Name, runner}, {lifecycle.RelayName, s.Delivery.Relay.Name, relay}} {
		if !n.wanted || n.name == "" {
			continue
		}
		h, err := lifecycle.Take(ctx, db.Pool, n.kind, n.name)
		if err != nil {
			return nil, errors.Join(heldName(err), held.release(ctx))
		}
		held = append(held, h)
	}
	return held, nil
}

// heldName decides the exit code.
func heldName(err error) error {
	var held *lifecycle.HeldError
	if errors.As(err, &held) {
		return &exitError{codeHeld, err}
	}
	return err
}

// loops keep the names.
func (n names) loops() (list []func(context.Context) error) {
	for _, h := range n {
		list = append(list, func(ctx context.Context) error { return heldName(h.Run(ctx)) })
	}
	return list
}

// release gives the names back.
func (n names) release(ctx context.Context) (err error) {
	for _, h := range n {
		err = errors.Join(err, h.Release(ctx))
	}
	return err
}

// during holds the names while do runs, and stops it softly when one is lost.
func (n names) during(ctx context.Context, do func(context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	ended := make(chan error, len(n))
	for _, loop := range n.loops() {
		go func() {
			err := loop(ctx)
			if err != nil {
				stop(err)
			}
			ended <- err
		}()
	}
	err := do(ctx)
	stop(nil)
	for range n {
		if lost := <-ended; lost != nil {
			err = lost // the rest follows from it
		}
	}
	return err
}

// checkNames looks for names that two processes want.
func (d *doctor) checkNames(ctx context.Context, db *database) {
	type wanted struct{ Kind, Name, Holder, Rival string }
	rows, err := db.Pool.Query(ctx, queries.SQL("DoctorNames"))
	var list []wanted
	if err == nil {
		list, err = pgx.CollectRows(rows, pgx.RowToStructByName[wanted])
	}
	if err != nil {
		d.note("names", healthFailed, "", "%s", err)
		return
	}
	for _, w := range list {
		key := map[string]string{lifecycle.RunnerName: "runner.name", lifecycle.RelayName: "delivery.name"}[w.Kind]
		d.note("names", healthWarning, fmt.Sprintf("is a unit file copied? Leave %s out, or give each process its own", key),
			"%s %q belongs to process %s, and process %s wanted it within the last ten minutes: it does not run", key, oneLine(w.Name, 70), w.Holder, w.Rival)
	}
	if len(list) == 0 {
		d.note("names", healthOK, "", "no two processes want one name")
	}
}
