package dashboard

import (
	"context"
	"embed"
	"net/http"
	"path"
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
	outbox    *outbox.Outbox

	Root  address // of the dashboard's root
	Name  string  // of the outbox; empty on pages without an outbox
	Names []string
	Here  string // the last part of the address
	User  string
	Role  httptx.Role
	Now   time.Time
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
	if role.May(httptx.View) {
		p.Names = d.names
	}
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

// route finds the page: /{outbox}/{page}, or the first outbox.
func (p *page) route() error {
	rest, slash := strings.CutPrefix(p.r.URL.Path, "/")
	name, here, inside := strings.Cut(rest, "/")
	if name == "" && here == "" { // the last part of the address, if the mount has no slash at its end
		start := p.dashboard.names[0] + "/"
		if !slash {
			start = path.Base(strings.SplitN(p.r.RequestURI, "?", 2)[0]) + "/" + start
		}
		return p.redirect(http.StatusFound, start)
	}
	ob, known := p.dashboard.config.Outboxes[name]
	if !known {
		return &problem{http.StatusNotFound, "Not found", "There is no such page, and no outbox of that name."}
	}
	if !inside {
		return p.redirect(http.StatusFound, name+"/")
	}
	p.outbox, p.Name, p.Here = ob, name, here
	get, post := pages[here], posts[here]
	switch method := p.r.Method; {
	case get == nil && post == nil:
		return &problem{http.StatusNotFound, "Not found", "There is no such page."}
	case get != nil && (method == http.MethodGet || method == http.MethodHead):
		return get(p)
	case post != nil && method == http.MethodPost:
		if !p.Role.May(httptx.Operate) {
			return &problem{http.StatusForbidden, "Refused", "You may look, but not change anything: your role lacks Operate."}
		}
		return post(p)
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
	p.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	p.w.WriteHeader(status)
	_, _ = p.w.Write(visible([]byte(p.layout(title, body)))) // an error means that the client has gone
	return nil
}

// context bounds the queries of the page.
func (p *page) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(p.r.Context(), p.dashboard.config.Timeout)
}
