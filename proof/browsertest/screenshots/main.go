// Screenshots makes the images of docs/how-to/dashboard.md.
package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	_ "modernc.org/sqlite" // the database of the images

	"github.com/outboxkit/outbox-go/dashboard"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/testing/dashtest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/proof/browsertest"
)

func main() {
	folder := flag.String("dir", "../../docs/images", "where the images go")
	all := flag.Bool("all", false, "every view at 1440 and 390 pixels, light and dark, to look at")
	flag.Parse()
	if err := run(context.Background(), *folder, *all); err != nil {
		fmt.Fprintln(os.Stderr, "screenshots:", err)
		os.Exit(1)
	}
}

// shot is an image of a page.
type shot struct {
	name, page string
	press      string // the selector of an element to click on, if any
	width      int64
	dark       bool
}

// views are the pages that have an image.
var views = []shot{
	{name: "overview"},
	{name: "events", page: "events?status=WAITING"},
	{name: "event", page: "event?id=retried"},
	{name: "dead", page: "dead"},
	{name: "letters", page: "letters"},
	{name: "delete", page: "dead", press: "form button.danger"},
	{name: "steering", page: "steering"},
}

// shots returns the images of the page in the documents, or every view on a wide screen and on a
// phone, light and dark.
func shots(all bool) (list []shot) {
	if !all {
		for _, view := range views {
			view.width = 1100
			list = append(list, view)
		}
		return append(list, shot{name: "dead-phone", page: "dead", width: 390}, shot{name: "overview-dark", dark: true, width: 1100})
	}
	for _, view := range views {
		for _, width := range []int64{1440, 390} {
			for scheme, dark := range map[string]bool{"light": false, "dark": true} {
				list = append(list, shot{fmt.Sprintf("%s-%d-%s", view.name, width, scheme), view.page, view.press, width, dark})
			}
		}
	}
	return list
}

func run(ctx context.Context, folder string, all bool) error {
	temp, err := os.MkdirTemp("", "screenshots")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(temp, "shop.db")+"?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	store := sqlstore.SQLite()
	if err := store.CreateSchema(ctx, db); err != nil {
		return err
	}
	if err := dashtest.Insert(ctx, db, testdb.SQLite, dashtest.Shop(time.Now())...); err != nil {
		return err
	}
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if err := ob.Pause(outbox.WithOperator(ctx, outbox.Operator{Name: "ada"}), outbox.Pause{Kind: outbox.EventKind{AggregateType: "Order", EventType: "OrderReminder"}}); err != nil {
		return err
	}
	if err := errors.Join(announceOld(ctx, store, db), announce(ctx, store, db, time.Now())); err != nil {
		return err
	}
	return shoot(ctx, folder, shots(all), ob, store, db)
}

// announceOld is the report of a node that has the version before.
func announceOld(ctx context.Context, store *sqlstore.Store, db *sql.DB) error {
	return store.Announce(ctx, db, outbox.Node{
		Owner: "shop-0", Mode: "multi-node", Version: "v1.8.2", Started: time.Now().Add(-26 * time.Hour), LastPoll: time.Now(), Totals: &outbox.Totals{},
	}, time.Hour)
}

// announce is the report of a node that started then.
func announce(ctx context.Context, store *sqlstore.Store, db *sql.DB, started time.Time) error {
	n := int64(time.Since(started).Seconds())
	kind := func(event outbox.EventType, delivered, failed int64) outbox.KindTotals {
		return outbox.KindTotals{Kind: outbox.EventKind{AggregateType: "Order", EventType: event}, Delivered: delivered, Failed: failed}
	}
	return store.Announce(ctx, db, outbox.Node{
		Owner: "shop-1", Mode: "multi-node", Version: "v1.9.0", Started: started, LastPoll: time.Now(), HotDepth: 2,
		Totals: &outbox.Totals{
			Written: 30*n + n*n/8, Delivered: 29*n + n*n/8, Failed: n * n / 400, Latencies: []int64{0, 2 * n, 0, 8 * n, 9 * n, 5 * n, 3 * n, n, 0, n},
			Kinds: []outbox.KindTotals{kind("OrderPlaced", 20*n, 0), kind("OrderPaid", 9*n, n*n/400), kind("OrderReminder", n/10, 0)},
		},
	}, time.Minute)
}

func shoot(ctx context.Context, folder string, list []shot, ob *outbox.Outbox, store *sqlstore.Store, db *sql.DB) error {
	page, err := dashboard.New(dashboard.Config{
		Outboxes: map[string]*outbox.Outbox{"shop": ob}, Interval: 100 * time.Millisecond,
		Access: httptx.Access{Authorize: func(*http.Request) (string, httptx.Role) { return "ada", httptx.ReadPayloads | httptx.Operate }},
	})
	if err != nil {
		return err
	}
	server := httptest.NewServer(page)
	defer server.Close()
	defer page.EndStreams()
	tab, end, err := browsertest.Start(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := work(ctx, store, db); err != nil {
		return err
	}
	for _, shot := range list {
		file, err := take(ctx, tab, server.URL+"/shop/", &shot, db)
		if err != nil {
			return fmt.Errorf("%s: %w", shot.name, err)
		}
		if err := os.WriteFile(filepath.Join(folder, "dashboard-"+shot.name+".png"), file, 0o600); err != nil {
			return err
		}
		fmt.Printf("%s: %d kB\n", shot.name, len(file)/1000)
	}
	return nil
}

func take(ctx, tab context.Context, url string, shot *shot, db *sql.DB) ([]byte, error) {
	scheme := "light"
	if shot.dark {
		scheme = "dark"
	}
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
	if _, err := chromedp.Call(tab, emulation.SetEmulatedMedia, media); err != nil {
		return nil, err
	}
	height := int64(844)
	if shot.page == "" {
		height = 1500 // with the charts
	}
	if err := chromedp.Do(tab, chromedp.EmulateViewport(shot.width, height), chromedp.Navigate(url+shot.page)); err != nil {
		return nil, err
	}
	if shot.press != "" {
		press := fmt.Sprintf("document.querySelector(%q).click()", shot.press)
		if err := chromedp.Do(tab, chromedp.Evaluate[chromedp.Void](press), chromedp.WaitReady(".question")); err != nil {
			return nil, err
		}
	}
	if shot.page == "" { // the overview is live
		if err := deliver(ctx, db); err != nil {
			return nil, err
		}
	}
	file, err := chromedp.Run(tab, chromedp.CaptureScreenshot())
	if err != nil {
		return nil, err
	}
	return small(file)
}

// small writes an image with the 256 colors that it has most of: a page has few colors.
func small(file []byte) ([]byte, error) {
	full, err := png.Decode(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	box, counts := full.Bounds(), map[color.Color]int{}
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			counts[full.At(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int { return counts[b] - counts[a] })
	few := image.NewPaletted(box, colors[:min(len(colors), 256)])
	draw.Draw(few, box, full, box.Min, draw.Src)
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	err = encoder.Encode(&out, few)
	return out.Bytes(), err
}

// work reports for two minutes, so that the charts have lines.
func work(ctx context.Context, store *sqlstore.Store, db *sql.DB) error {
	for started := time.Now(); time.Since(started) < 2*time.Minute; time.Sleep(5 * time.Second) {
		if err := errors.Join(announce(ctx, store, db, started), deliver(ctx, db)); err != nil {
			return err
		}
	}
	return nil
}

// deliver adds events, due and delivered, for three seconds.
func deliver(ctx context.Context, db *sql.DB) error {
	for i := range 60 {
		now := time.Now()
		var rows []dashtest.Row
		for n := range 3 {
			rows = append(rows, dashtest.Row{ID: fmt.Sprintf("new-%d-%d", now.UnixMicro(), n), Type: "OrderPlaced", Aggregate: "Order", Created: now.Add(-15 * time.Millisecond), Ended: now, Status: outbox.StatusDone})
		}
		if i%3 == 0 {
			rows = append(rows, dashtest.Row{ID: fmt.Sprintf("due-%d", now.UnixMicro()), Type: "OrderPlaced", Aggregate: "Order", AggregateID: fmt.Sprint(i), Created: now})
		}
		if err := dashtest.Insert(ctx, db, testdb.SQLite, rows...); err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}
