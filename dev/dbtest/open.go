package dbtest

import (
	"context"
	"fmt"
)

// Open is New for Examples, which have no testing.TB. The caller calls drop at the end. Both panic on failure, because
// an Example has no other way to fail.
func Open() (db *DB, drop func()) {
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	must := func(err error) {
		if err != nil {
			panic(fmt.Sprintf("dbtest: %v", err))
		}
	}
	h, err := shared.open(ctx)
	must(err)
	db = &DB{Name: newName("example")}
	must(h.clone(ctx, db.Name))
	db.DSN, err = h.dsn(db.Name)
	must(err)
	db.Pool, err = openPool(ctx, db.DSN, poolSize)
	must(err)
	must(adopt(ctx, db.Pool))
	return db, func() {
		ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
		defer cancel()
		db.Pool.Close()
		must(h.drop(ctx, db.Name))
	}
}
