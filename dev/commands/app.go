package commands

import (
	"context"
	"crypto/rand"
	"errors"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry/dev/app"
	"github.com/belfryhq/belfry/node/settings"
)

// WriteApp writes the configuration of the notification centre for `belfry demo-app` to a file, unless the file exists.
func WriteApp(file string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(app.Settings(app.Listen, rand.Text()+rand.Text()))
	return errors.Join(err, f.Close())
}

// ServeApp serves the application of two people until ctx ends.
func ServeApp(ctx context.Context, out Output, s settings.Settings, pool *pgxpool.Pool) error {
	if s.Inbox.Listen == "" || len(s.Inbox.Centre.Keys) == 0 {
		return errors.New("the configuration has no notification centre; `belfry demo-app --write FILE` writes one")
	}
	h, err := app.Handler(ctx, pool, app.Config{URL: "http://" + s.Inbox.Listen, Audience: s.Inbox.Centre.Audience,
		Key: s.Inbox.Centre.Keys[0]})
	if err != nil {
		return err
	}
	out.Remark("two people with bells: http://%s", app.Listen)
	return app.Serve(ctx, app.Listen, h)
}
