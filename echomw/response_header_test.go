package echomw_test

import (
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"
)

// What a handler sets when the status has been said is too late, as it is
// without the middleware, unless it is a trailer.
func TestHeadersAreThoseOfWhenTheStatusWasSaid(t *testing.T) {
	t.Parallel()
	late := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			err := next(c)
			c.Response().Header().Set("X-After", "1")
			return err
		}
	}
	handlers := map[string]echo.HandlerFunc{
		"/set": func(c echo.Context) error {
			c.Response().Header().Set("X-Early", "1")
			_ = c.String(http.StatusCreated, "ok")
			c.Response().Header().Set("X-Late", "1")
			c.Response().Header().Set("Content-Type", "text/late")
			c.Response().Header().Del("X-Early")
			c.SetCookie(&http.Cookie{Name: "late", Value: "1"})
			return nil
		},
		"/written": func(c echo.Context) error {
			_, _ = c.Response().Writer.Write([]byte("ok"))
			c.Response().Header().Set("X-Late", "1")
			return nil
		},
		"/declared": func(c echo.Context) error {
			c.Response().Header().Set("Trailer", "checksum, X-Count")
			_ = c.String(http.StatusCreated, "ok")
			c.Response().Header().Set("Checksum", "42")
			c.Response().Header().Set("X-Count", "2")
			return nil
		},
		"/declared and flushed": func(c echo.Context) error {
			c.Response().Header().Set("Trailer", "Checksum")
			_ = c.String(http.StatusCreated, "ok")
			c.Response().Header().Set("Checksum", "42")
			c.Response().Flush()
			return nil
		},
		"/prefixed": func(c echo.Context) error {
			_ = c.String(http.StatusCreated, "ok")
			c.Response().Flush() // a short response has no trailers otherwise
			c.Response().Header().Set(http.TrailerPrefix+"Checksum", "42")
			return nil
		},
		"/prefixed before": func(c echo.Context) error {
			_ = c.String(http.StatusCreated, "ok")
			c.Response().Header().Set(http.TrailerPrefix+"Checksum", "42")
			c.Response().Flush()
			return nil
		},
	}
	for name, outer := range map[string][]echo.MiddlewareFunc{"plain": nil, "Gzip outside": {middleware.Gzip()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			with, without := newApp(t), newApp(t)
			with.transaction(outer, late)
			without.Use(outer...)
			if outer == nil { // Gzip sends late headers itself
				without.Use(late)
			}
			for path, handler := range handlers {
				with.POST(path, with.writing(handler))
				without.POST(path, handler)
			}
			n := 0
			for path := range handlers {
				want, got := without.post(path), with.post(path)
				n++
				want.Header.Del("Date")
				got.Header.Del("Date")
				require.Equal(t, want.Header, got.Header, path)
				require.Equal(t, want.Trailer, got.Trailer, path)
				require.Equal(t, "ok", got.body, path)
				require.Len(t, with.record.Outcomes(), n)
			}
			got := with.post("/set", "Accept-Encoding", "gzip")
			require.Equal(t, "1", got.Header.Get("X-Early"))
			require.Equal(t, "ok", gunzip(t, got).body)
		})
	}
}
