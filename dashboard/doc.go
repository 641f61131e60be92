// Package dashboard is a page for operators of outboxes. The page shows the waiting events, the
// delivered events and the delivery times, the nodes that deliver, single events, and dead letters
// grouped by their reason. Users with the role for it replay and delete dead letters, pause kinds
// of events, purge, and wake the poller.
//
//	page, err := dashboard.New(dashboard.Config{
//		Outboxes: map[string]*outbox.Outbox{"orders": ob},
//		Access:   httptx.Access{Authorize: roleOf}, // without it: read-only, no payloads
//	})
//	if err != nil {
//		return err
//	}
//	server.RegisterOnShutdown(page.EndStreams)
//	mux.Handle("/outbox/", http.StripPrefix("/outbox", page))
//
// With chi: r.Handle("/outbox/*", http.StripPrefix("/outbox", page)). With Echo:
// e.Any("/outbox/*", echo.WrapHandler(http.StripPrefix("/outbox", page))). All links are
// relative, so a proxy may add a prefix too.
//
// The page needs no JavaScript; with JavaScript, the overview is live. The page sets no cookies,
// loads nothing from elsewhere, and has a strict Content-Security-Policy.
package dashboard
