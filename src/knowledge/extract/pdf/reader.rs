//! The document's pages, one after the other, from two programs beside each other. Where one fails on a page, that page is
//! left out and told, and the rest is read.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::fonts::{self, Fonts};
use super::page::PdfPage;
use super::stream::{Next, Stream};
use super::words;
use crate::extract::program::Allowance;

/// The number of failures after which the document is given up.
const MAX_FAILURES: u32 = 20;

pub(super) struct Reader {
    pub(super) text_program: PathBuf,
    pub(super) font_program: PathBuf,
    pub(super) file: PathBuf,
    /// The number of pages.
    pub(super) pages: u32,
    pub(super) allowance: Allowance,
    /// A page that takes longer is left out.
    pub(super) patience: Duration,
    pub(super) state: ReaderState,
}

#[derive(Default)]
pub(super) struct ReaderState {
    text: Option<Stream<PdfPage>>,
    fonts: Option<Stream<Fonts>>,
    fonts_failed: bool,
    /// Fonts of a page that text has not come to.
    ahead: Option<Fonts>,
    /// The page that was read last, which is whole only when another has followed, or the end.
    held: Option<PdfPage>,
    /// The number of the next page to give.
    next: u32,
    failures: u32,
    /// Pages are read one by one up to this one.
    singly: u32,
}

pub(super) enum Read {
    Page(PdfPage),
    /// The page with this number cannot be read.
    Lost(u32),
    End,
    /// Nothing more can be read from this page on.
    GivenUp(u32),
}

impl Reader {
    pub(super) fn read(&mut self) -> io::Result<Read> {
        let state = &mut self.state;
        state.next = state.next.max(1);
        if state.next > self.pages {
            return Ok(Read::End);
        }
        if state.failures > MAX_FAILURES {
            return Ok(Read::GivenUp(state.next));
        }
        let number = state.next;
        let page = if number <= state.singly { self.single(number)? } else { self.following(number)? };
        match page {
            Some(mut page) => {
                self.tell_fonts(&mut page)?;
                self.state.next = number + 1;
                Ok(Read::Page(page))
            }
            None if number <= self.state.singly => {
                self.state.next = number + 1;
                Ok(Read::Lost(number))
            }
            // The stream broke off: this page and the next are tried alone.
            None => {
                self.state.failures += 1;
                self.state.singly = number + 1;
                self.read()
            }
        }
    }

    fn stream(&self, first: u32, last: u32) -> io::Result<Stream<PdfPage>> {
        Stream::start(words::print(&self.text_program, &self.file, first, last), self.allowance, |output, give| words::parse(output, give))
    }

    fn single(&self, number: u32) -> io::Result<Option<PdfPage>> {
        match self.stream(number, number)?.next(self.patience) {
            Next::Page(page) if page.number == number => Ok(Some(page)),
            _ => Ok(None),
        }
    }

    /// The page from the stream of all, or none where that breaks off.
    fn following(&mut self, number: u32) -> io::Result<Option<PdfPage>> {
        if self.state.text.is_none() {
            self.state.text = Some(self.stream(number, self.pages)?);
        }
        loop {
            let Some(stream) = &mut self.state.text else { return Ok(None) };
            match stream.next(self.patience) {
                Next::Page(page) => {
                    if let Some(held) = self.state.held.replace(page) {
                        return Ok(Some(held));
                    }
                }
                Next::End => {
                    let last = self.state.held.take().filter(|held| held.number == self.pages && held.number == number);
                    if last.is_none() {
                        self.state.text = None;
                    }
                    return Ok(last);
                }
                Next::Stalled => {
                    self.state.text = None;
                    self.state.held = None;
                    return Ok(None);
                }
            }
        }
    }

    /// Fonts are a help and no more: without them text has sizes by its height.
    fn tell_fonts(&mut self, page: &mut PdfPage) -> io::Result<()> {
        let state = &mut self.state;
        if state.fonts_failed {
            return Ok(());
        }
        if state.fonts.is_none() {
            let command = fonts::print(&self.font_program, &self.file, page.number);
            state.fonts = Some(Stream::start(command, self.allowance, |output, give| fonts::parse(output, give))?);
        }
        while state.ahead.as_ref().is_none_or(|fonts| fonts.number < page.number) {
            let Some(Next::Page(fonts)) = state.fonts.as_mut().map(|stream| stream.next(self.patience)) else {
                state.fonts_failed = true;
                return Ok(());
            };
            state.ahead = Some(fonts);
        }
        if let Some(fonts) = state.ahead.as_ref().filter(|fonts| fonts.number == page.number) {
            fonts.tell(page);
        }
        if page.number == self.pages {
            // What the program would go on with is the outline, which is known.
            state.fonts = None;
        }
        Ok(())
    }

    pub(super) fn fonts_failed(&self) -> bool {
        self.state.fonts_failed
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }
}
