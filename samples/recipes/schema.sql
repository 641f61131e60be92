CREATE TABLE orders (
    id   TEXT PRIMARY KEY,
    item TEXT NOT NULL CHECK (item <> '')
);
