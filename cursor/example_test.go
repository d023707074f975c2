package cursor_test

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belfryhq/belfry/cursor"
)

// A walk over documents by (changed_at, id), here in memory. On PostgreSQL the
// chunk is read by Window, OrderBy and LIMIT, and the stored text is committed
// with what the chunk wrote.
func Example() {
	keyset := cursor.MustKeyset(
		cursor.Column{Name: "changed_at", Type: cursor.Timestamptz},
		cursor.Column{Name: "id", Type: cursor.Bigint},
	)
	day := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	var documents []cursor.Position
	for id := range 5 {
		p, err := keyset.Position(day.AddDate(0, 0, id/2), id) // two a day
		if err != nil {
			fmt.Println(err)
			return
		}
		documents = append(documents, p)
	}

	bound := slices.MaxFunc(documents, keyset.Compare) // frozen when the walk begins
	stored := ""                                       // the start
	for {
		after, err := keyset.Decode(stored)
		if err != nil {
			fmt.Println(err)
			return
		}
		var chunk []cursor.Position
		for _, p := range documents {
			if keyset.Compare(p, after) > 0 && keyset.Compare(p, bound) <= 0 && len(chunk) < 2 {
				chunk = append(chunk, p)
			}
		}
		if len(chunk) == 0 {
			break // the keys are exhausted
		}
		stored = keyset.Encode(chunk[len(chunk)-1])
		fmt.Println(len(chunk), "up to", stored)
	}
	// Output:
	// 2 up to ["2026-01-02T00:00:00.000000Z",1]
	// 2 up to ["2026-01-03T00:00:00.000000Z",3]
	// 1 up to ["2026-01-04T00:00:00.000000Z",4]
}

func ExampleNewKeyset() {
	_, err := cursor.NewKeyset(cursor.Column{Name: "id", Type: "serial"})
	fmt.Println(err)
	// Output:
	// cursor: malformed keyset: column 1 ("id"): unknown type "serial"; want one of bigint, int, uuid, text, timestamptz
}

func ExampleKeyset_Window() {
	keyset := cursor.MustKeyset(cursor.Column{Name: "id", Type: cursor.Bigint})
	window, args := keyset.Window(cursor.Int64(1000), cursor.Int64(5000))
	args["limit"] = 500

	fmt.Println("SELECT", keyset.SelectList(), "FROM channels WHERE", window, "ORDER BY", keyset.OrderBy(), "LIMIT @limit")
	fmt.Println(args)
	// Output:
	// SELECT "id" FROM channels WHERE "id" > @after_1::bigint AND "id" <= @bound_1::bigint ORDER BY "id" LIMIT @limit
	// map[after_1:1000 bound_1:5000 limit:500]
}

func ExampleKeyset_Window_composite() {
	keyset := cursor.MustKeyset(
		cursor.Column{Name: "tenant", Type: cursor.Text},
		cursor.Column{Name: "id", Type: cursor.UUID},
	)
	bound, err := keyset.Position("acme", "0f8fad5b-d9cb-469f-a165-70867728950e")
	if err != nil {
		fmt.Println(err)
		return
	}
	window, _ := keyset.Window(cursor.Position{}, bound)
	fmt.Println(window)
	fmt.Println(keyset.OrderByDesc())
	// Output:
	// ("tenant" COLLATE "C", "id") <= (@bound_1::text COLLATE "C", @bound_2::uuid)
	// "tenant" COLLATE "C" DESC, "id" DESC
}

func ExampleKeyset_Decode() {
	keyset := cursor.MustKeyset(cursor.Column{Name: "id", Type: cursor.Bigint})

	p, err := keyset.Decode("1234")
	fmt.Println(p.Values(), err)

	_, err = keyset.Decode("01234")
	fmt.Println(errors.Is(err, cursor.ErrMalformed), err)
	// Output:
	// [1234] <nil>
	// true cursor: malformed position "01234": column "id": want a bigint in plain decimal digits, as 17 or -17
}

func ExampleKeyset_Position() {
	keyset := cursor.MustKeyset(cursor.Column{Name: "id", Type: cursor.UUID})

	p, err := keyset.Position("0F8FAD5B-D9CB-469F-A165-70867728950E")
	fmt.Println(keyset.Encode(p), err)

	_, err = keyset.Position(nil)
	fmt.Println(err)
	// Output:
	// 0f8fad5b-d9cb-469f-a165-70867728950e <nil>
	// cursor: value is no key of the keyset: column "id": is NULL; key columns have to be NOT NULL
}

func ExampleInt64() {
	p := cursor.Int64(17)
	v, ok := p.Int64()
	fmt.Println(p, v, ok)

	var start cursor.Position
	fmt.Println(start.IsZero(), p.IsZero())
	// Output:
	// 17 17 true
	// true false
}
