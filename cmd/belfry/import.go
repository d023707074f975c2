package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/channels/importing"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/text"
	"github.com/belfryhq/belfry/node/settings"
)

func newImportCommand(a *app) *cobra.Command {
	o := &importOptions{}
	cmd := &cobra.Command{
		Use:   "import FILE.csv[.gz]",
		Short: "Upsert channels from a CSV file, plain or gzip",
		Long: `Upsert channels into belfry.channels by external_id, from CSV with a header row.
Columns: external_id and platform, and optionally active, latitude, longitude,
locale, time_zone, attributes and addresses (JSON objects), and address.MEDIUM
such as address.push. FILE may be - for standard input.

--map COLUMN=FIELD reads a column of the file as one of these, --map COLUMN= leaves it
out; the flag may be repeated.

Rows that cannot be imported go to the file of rejects with their line number and
the reason; that file, fixed, can be imported as it is. It has the bytes of FILE, so that
another encoding can be converted. An apostrophe before = + - @ there keeps a spreadsheet from
taking a cell for a formula. Exit code 1 when rows were rejected; the rest is imported.

A quote that is not closed stops the import and names the line of its row, as does a row
over 1 MiB. The rows before it are imported; repeating the import is safe.`,
		Example: `  belfry channels import users.csv.gz
  belfry channels import users.csv --rejects bad.csv --json
  belfry channels import crm.csv --map uid=external_id --map os=platform --map signed_up=`,
		Args: exactArgs("FILE"),
	}
	cmd.Flags().StringVar(&o.rejects.Name, "rejects", "", "`FILE` for rejected rows (default: FILE.rejects.csv, made only when needed)")
	cmd.Flags().StringArrayVar(&o.maps, "map", nil, "read a `COLUMN` of the file as a field: COLUMN=FIELD; may be repeated")
	o.batch = flagOf(cmd.Flags(), "batch", "ROWS", "rows per transaction, 1 to 100000 (default 10000)", intBetween(1, 100_000))
	o.out = addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.commandOptions, o.file = a.options(cmd), args[0]
		return runImport(cmd.Context(), o)
	}
	return cmd
}

// importOptions are the options of `belfry channels import`.
type importOptions struct {
	commandOptions

	file    string
	rejects importing.RejectFile
	maps    []string
	batch   *parsed[int64]
	out     *output
}

// runImport upserts channels from a CSV file.
func runImport(ctx context.Context, o *importOptions) (err error) {
	columns, err := importing.ParseColumns(o.maps)
	if err != nil {
		return usagef("--map: %w", err)
	}
	file, size, err := openInput(o.file)
	if err != nil {
		return usagef("%s", config.ReadProblem(o.file, err))
	}
	defer func() { _ = file.Close() }() // it is only read
	if o.rejects.Name == "" {
		o.rejects.Name = importing.RejectName(o.file)
	}
	defer func() { err = errors.Join(err, o.rejects.Close()) }()
	return o.withDatabase(ctx, schemaCurrent, 0, func(ctx context.Context, s settings.Settings, db *database) error {
		store, err := channels.New(s.Channels)
		if err != nil {
			return err
		}
		progress := o.ticker()
		result, err := importing.Import(ctx, store, db.Pool, file, importing.Options{
			BatchSize: int(o.batch.or(0)), Columns: columns, Rejects: &o.rejects,
			Progress: func(p importing.Progress) {
				of := ""
				if size > 0 {
					of = fmt.Sprintf(" (%d%% of the file)", 100*p.Bytes/size)
				}
				progress.Show("%s read%s, %s, %s rejected", text.Counted(p.Rows, "row"), of, progress.PerSecond(p.Rows), text.Grouped(p.Rejected))
			},
		})
		return o.report(importReport{result, o.rejects.Made()}, progress.End(), err)
	})
}

// importReport is the JSON of `belfry channels import`.
type importReport struct {
	importing.Result

	RejectsFile string `json:"rejects_file"` // empty if no row was rejected
}

// report shows the result of an import, even of one that failed.
func (o *importOptions) report(r importReport, took string, failure error) error {
	if o.out.json() {
		if err := o.printJSON(r); err != nil {
			return errors.Join(failure, err)
		}
	} else {
		o.printf("%s in %s: %s inserted, %s updated, %s unchanged, %s repeated, %s rejected\n", text.Counted(r.Rows, "row"), took,
			text.Grouped(r.Inserted), text.Grouped(r.Updated), text.Grouped(r.Unchanged), text.Grouped(r.Repeated), text.Grouped(r.Rejected))
	}
	if failure != nil {
		return failure
	}
	if r.Rejected > 0 {
		return fmt.Errorf("%s rejected, see %s", text.Counted(r.Rejected, "row"), r.RejectsFile)
	}
	return nil
}

// openInput opens a file, or standard input for "-". The size is 0 if unknown.
func openInput(name string) (*os.File, int64, error) {
	if name == "-" {
		return os.Stdin, 0, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		err = errors.New(name + ": is a directory")
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}
