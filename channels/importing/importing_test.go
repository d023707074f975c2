package importing

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
)

// dump is the channels as text, for golden files and comparisons.
func (b bundle) dump(t *testing.T) string {
	t.Helper()
	rows, err := b.pool.Query(b.ctx, `SELECT format('%s|%s|%s|%s|%s|%s|%s|%s', external_id, platform, active, location, locale, time_zone, attributes, addresses)
		FROM belfry.channels ORDER BY external_id COLLATE "C"`)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return strings.Join(append(lines, ""), "\n")
}

// TestImport_Goldens imports each testdata/*.csv into a database of its
// own and records the result, the rejects and the channels: whatever is wrong
// with a row, its neighbours arrive, and the operator reads why it did not.
func TestImport_Goldens(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "*.csv"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 20)
	b := setup(t)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".csv")
		inOrder(t, name, func(t *testing.T) {
			b.exec(t, `TRUNCATE belfry.channels RESTART IDENTITY CASCADE`)
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			var rejects bytes.Buffer
			result, err := Import(b.ctx, b.store, b.pool, bytes.NewReader(text), Options{BatchSize: 4, Rejects: &rejects})
			require.Equal(t, result.Rows, result.Inserted+result.Updated+result.Unchanged+result.Repeated+result.Rejected)
			out := fmt.Sprintf("%+v\nerror: %v\n--- rejects\n%s--- channels\n%s", result, err, rejects.String(), b.dump(t))
			dbtest.Golden(t, "testdata/"+name+".golden", out)
		})
	}
}

func TestImport_UpsertsOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	load := func(text string) Result {
		result, err := Import(b.ctx, b.store, b.pool, strings.NewReader(text), Options{})
		require.NoError(t, err)
		return result
	}
	first := "external_id,platform,active,latitude,longitude,locale,attributes,address.push,address.sms\n" +
		"u-1,ios,true,37.5,127,ko-KR,\"{\"\"n\"\": 1}\",p1,s1\nu-2,web,false,,,,,p2,\n"
	require.Equal(t, Result{Rows: 2, Inserted: 2}, load(first))
	versions := b.queryIDs(t, `SELECT array_agg(xmin::text::bigint ORDER BY id) FROM belfry.channels`)
	sequence := b.queryIDs(t, `SELECT ARRAY[last_value] FROM belfry.channels_id_seq`)

	require.Equal(t, Result{Rows: 2, Unchanged: 2}, load(first))
	require.Equal(t, versions, b.queryIDs(t, `SELECT array_agg(xmin::text::bigint ORDER BY id) FROM belfry.channels`), "unchanged rows are not written")
	require.Equal(t, sequence, b.queryIDs(t, `SELECT ARRAY[last_value] FROM belfry.channels_id_seq`), "nor do they use up ids")
	require.Equal(t, []int64{0}, b.queryIDs(t, `SELECT array_agg(DISTINCT xmax::text::bigint) FROM belfry.channels`), "nor are they locked")

	require.Equal(t, Result{Rows: 3, Inserted: 1, Updated: 1, Unchanged: 1},
		load("platform,external_id,address.push\nios,u-1,\nweb,u-2,p2\nandroid,u-3,p3\n"))
	require.Equal(t, strings.Join([]string{
		`u-1|ios|t|(127,37.5)|ko-KR||{"n": 1}|{"sms": "s1"}`,
		`u-2|web|f||||{}|{"push": "p2"}`,
		`u-3|android|t||||{}|{"push": "p3"}`, "",
	}, "\n"), b.dump(t), "columns that the file lacks stay; an empty address is removed")

	require.Equal(t, Result{Rows: 1, Updated: 1},
		load("external_id,platform,active,latitude,longitude,locale,attributes,addresses\nu-1,web,,,,,,\n"))
	require.Contains(t, b.dump(t), "u-1|web|t||||{}|{}\n", "an empty cell clears, an empty active keeps")
}

func TestImport_LocationsTooCloseForTheIndex(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := Import(b.ctx, b.store, b.pool, strings.NewReader("external_id,platform,latitude,longitude\nu-1,ios,-1e-300,1e-11\n"), Options{})
	require.NoError(t, err)
	require.Contains(t, b.dump(t), "u-1|ios|t|(1e-11,0)|")
	_, err = b.pool.Exec(b.ctx, `UPDATE belfry.channels SET location = point(1e-300, 0)`)
	require.ErrorContains(t, err, "channels_location_tiny_check")
}

func TestImport_LastOfRepeatedRowsWins(t *testing.T) {
	t.Parallel()
	b := setup(t)
	text := "external_id,platform\nu-1,ios\nu-2,ios\nu-1,web\nu-3,ios\nu-1,android\n"
	result, err := Import(b.ctx, b.store, b.pool, strings.NewReader(text), Options{BatchSize: 3})
	require.NoError(t, err)
	require.Equal(t, Result{Rows: 5, Inserted: 3, Updated: 1, Repeated: 1}, result)
	require.Contains(t, b.dump(t), "u-1|android|")
}

func TestImport_ReadsGzipByItsMagic(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write([]byte("\xef\xbb\xbfexternal_id,platform\r\nu-1,ios\r\nu-2,web"))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	whole := packed.Bytes()
	var last Progress
	result, err := Import(b.ctx, b.store, b.pool, bytes.NewReader(whole), Options{Progress: func(p Progress) { last = p }})
	require.NoError(t, err)
	require.Equal(t, Result{Rows: 2, Inserted: 2}, result)
	require.Equal(t, Progress{Result: result, Bytes: int64(len(whole))}, last)

	result, err = Import(b.ctx, b.store, b.pool, bytes.NewReader(whole[:len(whole)-4]), Options{})
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, Result{Rows: 1, Unchanged: 1}, result, "the line that the cut may have shortened is not taken")
}

func TestImport_StopsWithWhatItCommitted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	broken := io.MultiReader(strings.NewReader("external_id,platform\nu-1,ios\nu-2,web\nu-3,io"), iotest.ErrReader(errors.New("disk on fire")))
	result, err := Import(b.ctx, b.store, b.pool, broken, Options{BatchSize: 1})
	require.EqualError(t, err, "channels: import stopped at line 3, 2 rows inserted and 0 updated before: read the file: disk on fire")
	require.Equal(t, Result{Rows: 2, Inserted: 2}, result)

	ctx, cancel := context.WithCancelCause(b.ctx)
	stopped := errors.New("operator stopped it")
	result, err = Import(ctx, b.store, b.pool, strings.NewReader("external_id,platform\nu-7,ios\nu-8,ios\nu-9,ios\n"), Options{
		BatchSize: 1, Progress: func(Progress) { cancel(stopped) },
	})
	require.ErrorIs(t, err, stopped)
	require.Equal(t, int64(1), result.Rows)

	full := errors.New("no space left")
	_, err = Import(b.ctx, b.store, b.pool, strings.NewReader("external_id,platform\n,ios\n"), Options{Rejects: failingWriter{full}})
	require.ErrorIs(t, err, full)

	other, err := channels.New(channels.Config{Relation: "app.users"})
	require.NoError(t, err)
	_, err = Import(b.ctx, other, b.pool, strings.NewReader(""), Options{})
	require.ErrorIs(t, err, channels.ErrNotOwn)
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// flakyDB loses its connection at the COMMIT of the first transactions: before
// it, or, which is worse, after.
type flakyDB struct {
	channels.Beginner
	failures int
	commit   bool
}

type flakyTx struct {
	pgx.Tx
	db *flakyDB
}

func (db *flakyDB) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := db.Beginner.Begin(ctx)
	return &flakyTx{tx, db}, err
}

func (tx *flakyTx) Commit(ctx context.Context) error {
	if tx.db.failures == 0 {
		return tx.Tx.Commit(ctx)
	}
	tx.db.failures--
	if tx.db.commit {
		if err := tx.Tx.Commit(ctx); err != nil {
			return err
		}
	} else if err := tx.Rollback(ctx); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF // no answer
}

func TestImport_RepeatsABatchWhoseCommitWasLost(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{false, true} {
		b := setup(t)
		db := &flakyDB{Beginner: b.pool, failures: 2, commit: commit}
		result, err := Import(b.ctx, b.store, db, strings.NewReader("external_id,platform\nu-1,ios\nu-2,web\n"), Options{})
		require.NoError(t, err)
		require.Equal(t, int64(2), result.Rows)
		require.Equal(t, int64(2), result.Inserted+result.Unchanged)
		require.Equal(t, "u-1|ios|t||||{}|{}\nu-2|web|t||||{}|{}\n", b.dump(t))
	}
}

func TestTransient_IsToldFromPermanent(t *testing.T) {
	t.Parallel()
	for code, want := range map[string][2]bool{ // refused, transient
		"22P05": {true, false}, "23514": {true, false}, "54000": {true, false}, "40P01": {false, true}, "40001": {false, true},
		"57P01": {false, true}, "08006": {false, true}, "42P01": {false, false}, "53100": {false, true},
	} {
		err := fmt.Errorf("batch: %w", &pgconn.PgError{Code: code})
		require.Equal(t, want, [2]bool{refused(err), transient(err)}, code)
	}
}

// TestImport_RejectsCanBeImportedAgain: fixed, the file of rejects is a file of
// channels.
func TestImport_RejectsCanBeImportedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var rejects bytes.Buffer
	_, err := Import(b.ctx, b.store, b.pool, strings.NewReader("external_id,platform\nu-1,phone\nu-2,ios\nu-3,tv\n"), Options{Rejects: &rejects})
	require.NoError(t, err)
	fixed := strings.Replace(rejects.String(), ",phone\n", ",web\n", 1)
	var again bytes.Buffer
	result, err := Import(b.ctx, b.store, b.pool, strings.NewReader(fixed), Options{Rejects: &again})
	require.NoError(t, err)
	require.Equal(t, Result{Rows: 2, Inserted: 1, Rejected: 1}, result)
	require.Equal(t, "line,reason,external_id,platform\n"+
		"3,\"platform: \"\"tv\"\" is not a platform; allowed values: android, ios, web (INSERT INTO belfry.platforms adds one)\",u-3,tv\n", again.String())
}

// TestImport_RejectsAreNoFormulas: what others wrote is no formula in the file of rejects, and is
// itself again when that is imported.
func TestImport_RejectsAreNoFormulas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	file := "external_id,platform,locale\n=HYPERLINK(1),phone,'=ko\n-5,phone,ko\n"
	var rejects, again bytes.Buffer
	_, err := Import(b.ctx, b.store, b.pool, strings.NewReader(file), Options{Rejects: &rejects})
	require.NoError(t, err)
	require.Contains(t, rejects.String(), ",'=HYPERLINK(1),phone,''=ko\n")
	require.Contains(t, rejects.String(), ",-5,phone,ko\n", "a number is as it is")
	_, err = Import(b.ctx, b.store, b.pool, strings.NewReader(rejects.String()), Options{Rejects: &again})
	require.NoError(t, err)
	require.Equal(t, rejects.String(), again.String(), "apostrophes do not pile up")
	fixed := strings.ReplaceAll(strings.ReplaceAll(again.String(), ",phone,", ",web,"), "''=ko", "ko")
	result, err := Import(b.ctx, b.store, b.pool, strings.NewReader(fixed), Options{})
	require.NoError(t, err)
	require.Equal(t, Result{Rows: 2, Inserted: 2}, result)
	var ids string
	require.NoError(t, b.pool.QueryRow(b.ctx, "SELECT string_agg(external_id, ' ' ORDER BY external_id COLLATE \"C\" DESC) FROM belfry.channels").Scan(&ids))
	require.Equal(t, "=HYPERLINK(1) -5", ids)
}

// TestImport_MapsColumns: a file keeps its own names, and so does the file of rejects.
func TestImport_MapsColumns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	file := "uid,os,token,signed_up\nu-1,ios,t-1,2020\nu-2,phone,t-2,2021\n"
	as := map[string]string{"uid": "external_id", "os": "platform", "token": "address.push", "signed_up": ""}
	var rejects bytes.Buffer
	result, err := Import(b.ctx, b.store, b.pool, strings.NewReader(file), Options{Columns: as, Rejects: &rejects})
	require.NoError(t, err)
	require.Equal(t, Result{Rows: 2, Inserted: 1, Rejected: 1}, result)
	var push string
	require.NoError(t, b.pool.QueryRow(b.ctx, "SELECT addresses ->> 'push' FROM belfry.channels WHERE external_id = 'u-1' AND platform = 'ios'").Scan(&push))
	require.Equal(t, "t-1", push)
	require.True(t, strings.HasPrefix(rejects.String(), "line,reason,uid,os,token,signed_up\n3,"), rejects.String())
	result, err = Import(b.ctx, b.store, b.pool, strings.NewReader(strings.Replace(rejects.String(), ",phone,", ",web,", 1)), Options{Columns: as})
	require.NoError(t, err)
	require.Equal(t, Result{Rows: 1, Inserted: 1}, result)

	for want, as := range map[string]map[string]string{
		`column "id", which is mapped to external_id, is not in the header; its columns: "uid, os, token, signed_up"`: {"id": "external_id"},
		`column "gone", which is mapped to left out, is not in the header`:                                            {"gone": ""},
		`column "external_id" is named twice`:                                                                         {"uid": "external_id", "os": "external_id"},
		`column "shoe_size" is unknown`:                                                                               {"uid": "shoe_size"},
		`column external_id is missing; required columns: external_id, platform; --map COLUMN=external_id`:            {"uid": "", "os": "platform", "token": "", "signed_up": ""},
	} {
		_, err := Import(b.ctx, b.store, b.pool, strings.NewReader(file), Options{Columns: as})
		require.ErrorContains(t, err, want)
	}
}

// TestRecordReader_LosesNoLine: whatever quotes are in a file, each line of it is in one record, read
// or refused with its bytes, or after the line that the error names.
func TestRecordReader_LosesNoLine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.SampledFrom([]string{"a,b", `"a",b`, `"a`, `a"b,c`, `"a"b,c`, `a,"`, `",`, "", `"x,""y""",z`, `""`}), 0, 12).Draw(t, "lines")
		end := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "line end")
		r := newRecordReader(iotest.HalfReader(strings.NewReader(strings.Join(lines, end))))
		at := 0 // lines accounted for
		blank := func(until int) {
			for ; at < until; at++ {
				require.Empty(t, lines[at], "only blank lines are skipped")
			}
		}
		for {
			rec, err := r.next()
			if errors.Is(err, io.EOF) {
				blank(len(lines))
				return
			}
			if err != nil {
				for at < len(lines) && lines[at] == "" {
					at++
				}
				require.EqualError(t, err, fmt.Sprintf("the row that begins at line %d has a quote that is never closed; no row from there on was imported", at+1))
				require.Equal(t, 1, strings.Count(strings.Join(lines[at:], ""), `"`)%2)
				return
			}
			blank(rec.line - 1)
			text := strings.Join(lines[at:rec.last], end)
			if rec.problem == "" {
				fields, err := csv.NewReader(strings.NewReader(text)).Read()
				require.NoError(t, err)
				require.Equal(t, fields, rec.fields)
			} else {
				require.Nil(t, rec.fields)
				require.Equal(t, text, rec.raw)
				require.Contains(t, text, `"`, "a line without quotes is a record")
			}
			at = rec.last
		}
	})
}

func TestRecordReader_BoundsARecord(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxRecord+1<<16)
	tooLong := func(line int) string {
		return fmt.Sprintf("the row that begins at line %d has more than 1048576 bytes, perhaps by a quote that is not closed; no row from there on was imported", line)
	}
	for name, tt := range map[string]struct{ text, problem string }{
		"a long line":              {"a,b\n\n" + long + "\nc,d\n", tooLong(3)},
		"a long line with a quote": {"a,b\n\"" + long + "\"x\"\nc,d\n", tooLong(2)},
		"a quote in a long line":   {"a,b\nx\"" + long + "\nc,d\n", tooLong(2)},
		"a quote before a desert":  {"a,b\n\"a\n" + strings.Repeat("b,c\n", maxRecord/2) + "d,e", tooLong(2)},
		"lines that end in CR":     {strings.Repeat("a,b\r", maxRecord/2), crAlone},
		"blank lines":              {"a,b\n" + strings.Repeat("\r\n", maxRecord) + long, tooLong(maxRecord + 2)},
	} {
		r := newRecordReader(strings.NewReader(tt.text))
		rec, err := r.next()
		if err == nil {
			require.Equal(t, []string{"a", "b"}, rec.fields, name)
			_, err = r.next()
		}
		require.EqualError(t, err, tt.problem, name)
	}
	r := newRecordReader(strings.NewReader("a,b\n" + strings.Repeat("\n", 2*maxRecord) + "c,d"))
	_, err := r.next()
	require.NoError(t, err)
	rec, err := r.next()
	require.NoError(t, err)
	require.Equal(t, record{line: 2*maxRecord + 2, last: 2*maxRecord + 2, fields: []string{"c", "d"}}, rec)
}

func FuzzRecordReader(f *testing.F) {
	for _, text := range []string{"a,b\n", "\"a\"\"b\",c\r\n", "\"a\nb\",c", "a\"b", "\"", "\"a\"b\n", "\n\n", ",,\n", "\r\r\n00"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := newRecordReader(bytes.NewReader(text))
		for last := 0; ; {
			rec, err := r.next()
			if err != nil {
				return
			}
			require.Greater(t, rec.line, last)
			require.NotEqual(t, rec.problem == "", rec.fields == nil)
			require.Contains(t, string(text), rec.raw)
			last = rec.last
			require.LessOrEqual(t, last, bytes.Count(text, []byte("\n"))+1)
		}
	})
}

// The file of rejects has the bytes of the input: imported again as it is, it is refused
// for the same reason; converted, it goes in whole.
func TestImport_RejectsKeepTheirBytes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	load := func(text []byte) (Result, []byte) {
		var rejects bytes.Buffer
		result, err := Import(b.ctx, b.store, b.pool, bytes.NewReader(text), Options{Rejects: &rejects})
		require.NoError(t, err)
		return result, rejects.Bytes()
	}
	latin1 := []byte("external_id,platform,attributes\nl1,ios,\"{\"\"name\"\":\"\"Jos\xe9\"\"}\"\n")
	result, rejects := load(latin1)
	require.Equal(t, Result{Rows: 1, Rejected: 1}, result)
	require.Contains(t, string(rejects), "Jos\xe9")
	result, again := load(rejects)
	require.Equal(t, Result{Rows: 1, Rejected: 1}, result)
	require.Equal(t, string(rejects), string(again))
	result, _ = load(bytes.ReplaceAll(again, []byte{0xe9}, []byte("é")))
	require.Equal(t, Result{Rows: 1, Inserted: 1}, result)
	require.Equal(t, `l1|ios|t||||{"name": "José"}|{}`, strings.TrimSpace(b.dump(t)))
}
