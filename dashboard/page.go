package dashboard

import (
	"context"
	"embed"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
)

//go:embed assets
var assetFiles embed.FS

// page is a request, and the data that every page shows.
type page struct {
	dashboard *Dashboard
	w         http.ResponseWriter
	r         *http.Request
	site      *site
	outbox    *outbox.Outbox // of the site
	leave     func()         // gives back the place among the readers

	Root address // of the dashboard's root
	Name string  // of the outbox; empty on pages without an outbox
	Here string  // the last part of the address
	User string
	Role httptx.Role
	Now  time.Time
	// Refresh makes the browser load the page again every two seconds.
	Refresh bool
}

func newPage(d *Dashboard, w http.ResponseWriter, r *http.Request, user string, role httptx.Role) *page {
	depth := max(strings.Count(r.URL.Path, "/")-1, 0)
	root := address("./")
	if depth > 0 {
		root = address(strings.Repeat("../", depth))
	}
	p := &page{dashboard: d, w: w, r: r, Root: root, User: user, Role: role, Now: time.Now().UTC()}
	return p
}

// Operates reports whether the user may change something.
func (p *page) Operates() bool { return p.Role.May(httptx.Operate) }

// ReadOnly reports whether the user may look but not change anything.
func (p *page) ReadOnly() bool { return p.Role.May(httptx.View) && !p.Operates() }

// handlers are the pages of an outbox. The handlers of posts change something, or ask for a
// confirmation.
var (
	pages = map[string]func(p *page) error{
		"": (*page).overview, "live": (*page).live, "events": (*page).events, "event": (*page).event, "payload": (*page).payload,
		"dead": (*page).dead, "letters": (*page).letters, "steering": (*page).steering, "action": (*page).action, "audit": (*page).audit, "charts": (*page).charts, "history": (*page).history,
	}
	posts = map[string]func(p *page) error{"confirm": (*page).confirm, "act": (*page).act}
)

// readsNothing are the pages that read nothing from the database before they answer. An act reads in the
// background, where the number of running actions is bounded.
var readsNothing = map[string]bool{"live": true, "charts": true, "action": true, "act": true}

// serve serves a page when there is a place among the readers.
func (p *page) serve(page func(p *page) error) error {
	if readsNothing[p.Here] {
		return page(p)
	}
	p.leave = p.site.gate.Enter(p.r.Context())
	if p.leave == nil {
		p.w.Header().Set("Retry-After", "5")
		return &problem{http.StatusServiceUnavailable, "Busy", fmt.Sprintf("%d pages of this outbox are being read, which is Config.MaxReaders. Reload the page in some seconds.", p.dashboard.config.MaxReaders)}
	}
	defer p.leave()
	return page(p)
}

// hasRead gives back the place among the readers, before a slow client gets the answer.
func (p *page) hasRead() {
	if p.leave != nil {
		p.leave()
	}
}

// route finds the page: /{outbox}/{page}, or the root.
func (p *page) route() error {
	rest, slash := strings.CutPrefix(p.r.URL.Path, "/")
	name, here, inside := strings.Cut(rest, "/")
	if name == "" && here == "" {
		return p.root(slash)
	}
	site := p.dashboard.site(name)
	if site == nil {
		return &problem{http.StatusNotFound, "Not found", "There is no such page, and no outbox of that name runs in this process."}
	}
	if !inside {
		return p.redirect(http.StatusFound, name+"/")
	}
	p.site, p.outbox, p.Name, p.Here = site, site.outbox, name, here
	get, post := pages[here], posts[here]
	switch method := p.r.Method; {
	case get == nil && post == nil:
		return &problem{http.StatusNotFound, "Not found", "There is no such page."}
	case get != nil && (method == http.MethodGet || method == http.MethodHead):
		return p.serve(get)
	case post != nil && method == http.MethodPost:
		if !p.Role.May(httptx.Operate) {
			return &problem{http.StatusForbidden, "Refused", "You may look, but not change anything: your role lacks Operate."}
		}
		return p.serve(post)
	}
	allow := "GET, HEAD"
	if post != nil {
		allow = http.MethodPost
	}
	return p.wrongMethod(allow)
}

func (p *page) wrongMethod(allow string) error {
	p.w.Header().Set("Allow", allow)
	return &problem{http.StatusMethodNotAllowed, "Not possible", "This address takes " + allow + " alone. Start from the overview."}
}

// redirect sends a relative address. Unlike [http.Redirect], it leaves the address relative,
// because the request may have lost a prefix on the way here.
func (p *page) redirect(status int, address string) error {
	p.w.Header().Set("Location", address)
	p.w.WriteHeader(status)
	return nil
}

// asset serves a file of the page, to everybody.
func (p *page) asset(name string) error {
	kind, known := map[string]string{
		"style.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	}[name]
	if !known {
		return &problem{http.StatusNotFound, "Not found", "There is no such file."}
	}
	if p.r.Method != http.MethodGet && p.r.Method != http.MethodHead {
		return p.wrongMethod("GET, HEAD")
	}
	content, err := assetFiles.ReadFile("assets/" + name)
	if err != nil {
		return err
	}
	p.w.Header().Set("Content-Type", kind)
	_, _ = p.w.Write(content)
	return nil
}

// show answers with a page.
func (p *page) show(status int, title string, body markup) error {
	p.hasRead()
	p.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	p.w.WriteHeader(status)
	_, _ = p.w.Write(visible([]byte(p.layout(title, body)))) // an error means that the client has gone
	return nil
}

// context bounds the queries of the page. The time in which the page waited for a place counts too.
func (p *page) context() (context.Context, context.CancelFunc) {
	return context.WithDeadline(p.r.Context(), p.Now.Add(p.dashboard.config.Timeout))
}
