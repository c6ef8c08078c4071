//! The style sheet and the script of the page, part of the program.

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

pub(super) async fn css() -> Response {
    let kind = [(CONTENT_TYPE, "text/css; charset=utf-8")];
    (kind, include_str!("../../../assets/page.css")).into_response()
}

pub(super) async fn script() -> Response {
    let kind = [(CONTENT_TYPE, "text/javascript; charset=utf-8")];
    (kind, include_str!("../../../assets/page.js")).into_response()
}
