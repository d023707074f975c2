package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/lifecycle"
	"github.com/belfryhq/belfry/internal/printer"
)

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
