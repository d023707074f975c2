package text_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/text"
)

func TestTable_LeavesColumnsOutWhereThereIsNoRoom(t *testing.T) {
	t.Parallel()
	table := func() *text.Table {
		l := text.NewTable(">ID", "STATUS", "LANE", "DUE", "TITLE")
		l.Add("1", "PROCESSED", "default", "2026-11-20 12:00:00", strings.Repeat("x", 60))
		return l
	}
	for columns, want := range map[int]string{
		200: "ID  STATUS     LANE     DUE                  TITLE\n 1  PROCESSED  default  2026-11-20 12:00:00  " + strings.Repeat("x", 60) + "\n",
		65:  "ID  STATUS     LANE     DUE                  TITLE\n 1  PROCESSED  default  2026-11-20 12:00:00  " + strings.Repeat("x", 19) + "…\n",
		60:  "ID  STATUS     DUE                  TITLE\n 1  PROCESSED  2026-11-20 12:00:00  " + strings.Repeat("x", 23) + "…\n",
		35:  "ID  STATUS     TITLE\n 1  PROCESSED  " + strings.Repeat("x", 19) + "…\n",
		10:  "ID  STATUS     TITLE\n 1  PROCESSED  " + strings.Repeat("x", 15) + "…\n",
	} {
		l := table()
		l.Dispensable(16, "LANE", "DUE")
		var out bytes.Buffer
		(&text.Terminal{Output: &out, Columns: columns}).Show(func(d *text.Doc) { d.Table(l) })
		require.Equal(t, want, out.String(), columns)
	}
}
