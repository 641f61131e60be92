// Screenshots makes the images of docs/how-to/dashboard.md.
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

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
	flag.Parse()
	if err := run(context.Background(), *folder); err != nil {
		fmt.Fprintln(os.Stderr, "screenshots:", err)
		os.Exit(1)
	}
}

// shots are the images and their pages.
var shots = []struct{ name, page string }{
	{"overview", ""}, {"events", "events?status=WAITING"}, {"event", "event?id=retried"}, {"dead", "dead"}, {"letters", "letters"}, {"steering", "steering"},
}

func run(ctx context.Context, folder string) error {
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
	if err := ob.Pause(ctx, outbox.Pause{Kind: outbox.EventKind{AggregateType: "Order", EventType: "OrderReminder"}}); err != nil {
		return err
	}
	if err := store.Announce(ctx, db, outbox.Node{
		Owner: "shop-1", Mode: "multi-node", Started: time.Now().Add(-26 * time.Hour), LastPoll: time.Now(), HotDepth: 2,
	}, time.Minute); err != nil {
		return err
	}
	return shoot(ctx, folder, ob, db)
}

func shoot(ctx context.Context, folder string, ob *outbox.Outbox, db *sql.DB) error {
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
	if err := chromedp.Do(tab, chromedp.EmulateViewport(1100, 900)); err != nil {
		return err
	}
	for _, shot := range shots {
		if err := chromedp.Do(tab, chromedp.Navigate(server.URL+"/shop/"+shot.page)); err != nil {
			return err
		}
		if shot.page == "" { // the chart gets some samples
			if err := deliver(ctx, db); err != nil {
				return err
			}
		}
		image, err := chromedp.Run(tab, chromedp.CaptureScreenshot())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, "dashboard-"+shot.name+".png"), image, 0o600); err != nil {
			return err
		}
		fmt.Printf("%s: %d kB\n", shot.name, len(image)/1000)
	}
	return nil
}

// deliver adds events, due and delivered, for three seconds.
func deliver(ctx context.Context, db *sql.DB) error {
	for i := range 60 {
		now := time.Now()
		var rows []dashtest.Row
		for n := range 3 {
			rows = append(rows, dashtest.Row{ID: fmt.Sprintf("new-%d-%d", i, n), Type: "OrderPlaced", Aggregate: "Order", Created: now.Add(-15 * time.Millisecond), Ended: now, Status: outbox.StatusDone})
		}
		if i%3 == 0 {
			rows = append(rows, dashtest.Row{ID: fmt.Sprintf("due-%d", i), Type: "OrderPlaced", Aggregate: "Order", AggregateID: fmt.Sprint(i), Created: now})
		}
		if err := dashtest.Insert(ctx, db, testdb.SQLite, rows...); err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}
