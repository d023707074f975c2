// Command embedded is an HTTP service that runs belfry inside. POST /posts publishes a post and
// enqueues the notice about it in one transaction: either both exist, or neither.
//
//	DATABASE_URL=postgres://… go run ./_examples/embedded
//	curl -d 'Ten things to know' http://127.0.0.1:8080/posts
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/belfryhq/belfry"
	"github.com/belfryhq/belfry/job"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(ctx, log); err != nil {
		log.Error("stopped", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, log *slog.Logger) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx,
		"CREATE TABLE IF NOT EXISTS posts (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, title text NOT NULL)"); err != nil {
		return err
	}

	// belfry has a pool of its own here, so that a job never waits for the service's requests.
	config := belfry.DefaultConfig()
	config.Database.URL = os.Getenv("DATABASE_URL")
	instance, err := belfry.New(config, belfry.WithSlog(log))
	if err != nil {
		return err
	}
	belfryEnded := make(chan error, 1)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		belfryEnded <- instance.Run(ctx)
		stop() // without belfry the service ends as well
	}()

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8080"))
	if err != nil {
		stop()
		return errors.Join(err, <-belfryEnded)
	}
	server := &http.Server{Handler: posts(pool), ReadHeaderTimeout: 5 * time.Second}
	fmt.Printf("http://%s/posts\n", listener.Addr())
	go func() {
		<-ctx.Done()
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(ending)
	}()
	err = server.Serve(listener)
	stop()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return errors.Join(err, <-belfryEnded) // belfry has finished its chunk
}

// posts publishes the body of a POST.
func posts(pool *pgxpool.Pool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /posts", func(w http.ResponseWriter, r *http.Request) {
		title, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 200))
		if err != nil {
			http.Error(w, "a title has up to 200 bytes", http.StatusRequestEntityTooLarge)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
		defer cancel()
		var id int64
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
			var post int64
			if err = tx.QueryRow(ctx, "INSERT INTO posts (title) VALUES ($1) RETURNING id", string(title)).Scan(&post); err != nil {
				return err
			}
			id, err = job.EnqueueTx(ctx, tx, job.Spec{
				Type: "inbox", Category: "popular_content", Title: string(title),
				IdempotencyKey: fmt.Sprintf("post-%d", post),
			})
			return err
		})
		if invalid := new(job.InvalidError); errors.As(err, &invalid) {
			http.Error(w, invalid.Error(), http.StatusUnprocessableEntity)
			return
		}
		if err != nil {
			http.Error(w, "not published", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "job %d\n", id)
	})
	return mux
}
