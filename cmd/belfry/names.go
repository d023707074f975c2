package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/internal/settings"
)

// names are those that the configuration gives to this process, held until release.
type names struct{ *lifecycle.Hold }

// holdNames takes the names of the runner and of the relay, those of them that are given: a
// name that belfry makes up is nobody else's.
func holdNames(ctx context.Context, s settings.Settings, db *database, runner, relay bool) (names, error) {
	var given []lifecycle.Given
	if runner && s.Runner.Name != "" {
		given = append(given, lifecycle.Given{Kind: lifecycle.RunnerName, Name: s.Runner.Name})
	}
	if relay && s.Delivery.Relay.Name != "" {
		given = append(given, lifecycle.Given{Kind: lifecycle.RelayName, Name: s.Delivery.Relay.Name})
	}
	held, err := lifecycle.Take(ctx, db.Pool, given...)
	return names{held}, heldName(err)
}

// heldName decides the exit code.
func heldName(err error) error {
	var held *lifecycle.HeldError
	if errors.As(err, &held) {
		return &exitError{codeHeld, err}
	}
	return err
}

// keep keeps the names.
func (n names) keep(ctx context.Context) error { return heldName(n.Run(ctx)) }

// during holds the names while do runs, and stops it softly when one is lost.
func (n names) during(ctx context.Context, do func(context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := n.keep(ctx)
		if err != nil {
			stop(err)
		}
		ended <- err
	}()
	err := do(ctx)
	stop(nil)
	if lost := <-ended; lost != nil {
		return lost // the rest follows from it
	}
	return err
}

// checkNames looks for names that two processes want.
func (d *doctor) checkNames(ctx context.Context, db *database) {
	type wanted struct{ Kind, Name, Holder, Rival string }
	rows, err := db.Pool.Query(ctx, queries.doctorNames)
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
			"%s %q belongs to process %s, and process %s wanted it within the last ten minutes: it does not run", key, printer.OneLine(w.Name, 70), w.Holder, w.Rival)
	}
	if len(list) == 0 {
		d.note("names", healthOK, "", "no two processes want one name")
	}
}
